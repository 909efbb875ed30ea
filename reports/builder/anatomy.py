"""Makes the pictures of steps from what was read of traces. Words and numbers only, no layout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ...records import Analysis, Trial
from ...records.anatomy import IdleTime, Label, StepAnatomy, TraceAnatomy, WhichStep
from ...units import format_seconds
from ..anatomy import Anatomies, RanksPicture, RankStrip, StepPicture, TracePicture
from ..report import Column, Row, Table
from ..words.anatomy import IDLE, KINDS
from ..words.traces import trace_names
from ..words.wording import clean, percent, plural

MAX_TRACES = 4
"""Traces whose steps are drawn whole on one page."""
MAX_RANKS = 64
MAX_NAME = 140
"""Characters of a name; templates of C++ have thousands."""
STEP_RULE = (
    "The median step is the middle one of the steps when they are sorted by the length of their "
    "windows, of two the shorter; where some launched work of a GPU, only those count."
)
WINDOW = (
    "A step's window begins where the GPU's work of the step before has ended, and ends with its "
    "own; a host that is ahead already works on a later step in it."
)
WAY = (
    "The critical path is walked backwards from the end of the step: through an activity of the "
    "GPU to what it waited for last, which is its launch, the activity before it on its stream, or "
    "one of another stream; through the host back to where it last waited for the GPU. It is "
    "inferred from times: the trace does not state what waits for what."
)
ADDED_UP = (
    "The pieces of the lane, added up: in all steps they are the idle shares that the verdict goes "
    "by."
)
DRAINED = (
    "What began while the host waited for the GPU is part of the causes above it; the verdict "
    "counts it as synchronisation, as far as the waits allow."
)
_TITLES: dict[WhichStep, str] = {
    "median": "Median",
    "slowest": "Slowest",
    "only": "The only step",
    "whole": "The whole window",
}


def of_run(trial: Trial | None, trace: TraceAnatomy, num_ranks: int = 1) -> Anatomies:
    """The pictures of a run.

    Args:
        trial: whose steps were profiled; `None` without any.
        trace: what was read of it.
        num_ranks: of the script; only the first of them is profiled.
    """
    drawn = _trace(trace, "", job=False)
    if trial is None:
        return Anatomies(traces=(drawn,))
    notes = [f"Drawn are the profiled steps of size {trial.batch_size}."]
    if num_ranks > 1:
        notes.append(f"Only rank 0 of {num_ranks} ranks was profiled; the others are not drawn.")
    profiled = None if trial.profile is None else trial.profile.step_s
    if profiled is not None and trial.step_s is not None:
        notes.append(
            f"A profiled step takes {format_seconds(profiled)}, one that nothing profiles "
            f"{format_seconds(trial.step_s.median)}: profiling slows the host, and the shares of "
            "this report are put on the latter."
        )
    return Anatomies(traces=(msgspec.structs.replace(drawn, notes=(*notes, *drawn.notes)),))


def of_analysis(analysis: Analysis, traces: Sequence[TraceAnatomy]) -> Anatomies:
    """The pictures of what `analyze` found.

    Args:
        analysis: of the traces, which are ranks of one job where it has a verdict of its own.
        traces: what was read of each, in any order.
    """
    reports = analysis.traces
    named = {
        report.trace: name.removesuffix(f" GPU {report.device}")
        for report, name in zip(reports, trace_names(reports), strict=True)
    }
    places = {path: place for place, path in enumerate(named)}
    traces = sorted(traces, key=lambda trace: places[trace.trace])
    names = [named[trace.trace] for trace in traces]
    job = analysis.verdict is not None
    collectives = analysis.collectives
    straggler = None if collectives is None else collectives.straggler
    several = len(traces) > 1
    order = sorted(range(len(traces)), key=lambda at: (traces[at].rank != straggler, at))
    shown = sorted(order[:MAX_TRACES])
    left = [clean(names[at]) for at in range(len(traces)) if at not in shown]
    notes = []
    if left:
        listed = ", ".join(left[:8]) + (f" and {len(left) - 8} more" if len(left) > 8 else "")
        notes.append(
            f"The lanes of {plural(len(left), 'further trace')} are left out here; analyze a file "
            f"alone to see its own: {listed}."
        )
    return Anatomies(
        traces=tuple(
            _trace(traces[at], clean(names[at]) if several else "", job=job) for at in shown
        ),
        ranks=_ranks(traces, straggler) if job else None,
        notes=tuple(notes),
    )


def _trace(trace: TraceAnatomy, name: str, *, job: bool) -> TracePicture:
    if trace.unavailable:
        return TracePicture(
            name=name, unavailable=clean(trace.unavailable), notes=_sentences(trace.notes)
        )
    notes = list(_sentences(trace.notes))
    if trace.num_steps > 1:
        notes += [
            f"{STEP_RULE} Ranks of one job show the steps of the first rank." if job else STEP_RULE
        ]
    guide = [WAY] if any(step.way_ns for step in trace.steps) else []
    if any(step.idle for step in trace.steps) and trace.num_steps:
        guide.append(WINDOW)
    return TracePicture(
        name=name,
        labels=tuple(map(_label, trace.labels)),
        pictures=tuple(_picture(step, trace, job=job) for step in trace.steps),
        tables=tuple(_tables(trace)),
        notes=tuple(notes),
        help=tuple(guide),
    )


def _sentences(clauses: Iterable[str]) -> tuple[str, ...]:
    return tuple(clean(f"{clause[0].upper()}{clause[1:]}.") for clause in clauses if clause)


def _label(label: Label) -> Label:
    return msgspec.structs.replace(
        label,
        name=clean(label.name, limit=MAX_NAME),
        operator=clean(label.operator, limit=MAX_NAME),
        code=clean(label.code, limit=MAX_NAME),
        waits_for=clean(label.waits_for, limit=MAX_NAME),
    )


def _picture(step: StepAnatomy, trace: TraceAnatomy, *, job: bool) -> StepPicture:
    length = format_seconds(step.window_ns / 1e9)
    of = f" of {trace.num_steps} steps" if step.which in ("median", "slowest") else ""
    if of and len(trace.steps) == 1 and not job:
        of += ", of which none is slower"
    name = f": {_name(step)}" if step.name else ""
    return StepPicture(
        title=f"{_TITLES[step.which]}{of}{name}, {length}",
        step=_cleaned(step),
        notes=tuple(_drawn(step)),
    )


def _name(step: StepAnatomy) -> str:
    """`step 7`, as the tables of steps count them."""
    return f"step {clean(step.name.removeprefix('ProfilerStep#'))}" if step.name else "the window"


def _cleaned(step: StepAnatomy) -> StepAnatomy:
    lanes = tuple(msgspec.structs.replace(lane, name=clean(lane.name)) for lane in step.lanes)
    return msgspec.structs.replace(step, name=clean(step.name), lanes=lanes)


def _drawn(step: StepAnatomy) -> Iterable[str]:
    """What is merged and what is left out."""
    if step.merged_below_ns:
        yield (
            f"{step.num_events:,} events are drawn as {step.num_spans:,} blocks: what is shorter "
            f"than {format_seconds(step.merged_below_ns / 1e9)}, a "
            f"{round(step.window_ns / step.merged_below_ns):,}th of the picture, is one block with "
            "what begins beside it, paler where gaps are larger than what ran. The numbers are of "
            "the events, not of the blocks."
        )
    elif step.num_events:
        each = ", each a block of its own" if step.num_events > 1 else ""
        yield f"{plural(step.num_events, 'event')}{each}."
    else:
        yield "No event lies in this window."
    if step.left_out:
        yield f"Not drawn: {'; '.join(step.left_out)}."


# The tables: the same numbers as the lanes, added up.


def _tables(trace: TraceAnatomy) -> Iterable[Table]:
    steps = trace.steps
    devices = dict.fromkeys(idle.device for step in steps for idle in step.idle)
    for device in devices:
        own = [idle for step in steps for idle in step.idle if idle.device == device]
        yield _idle_table(own, steps, f"GPU {device}" if len(devices) > 1 else "the GPU")
    if any(step.way_ns for step in steps):
        yield _way_table(steps)


def _heads(steps: Sequence[StepAnatomy]) -> list[str]:
    heads = {"median": "median step", "slowest": "slowest step", "only": "the step"}
    return [heads.get(step.which, "whole window") for step in steps]


def _idle_table(own: Sequence[IdleTime], steps: Sequence[StepAnatomy], device: str) -> Table:
    """Idle time by cause: of each picture, and of the whole window that the verdict goes by."""
    times = [
        *((idle.idle_ns, idle.drained_ns, idle.window_ns) for idle in own),
        (own[0].whole_idle_ns, own[0].whole_drained_ns, own[0].whole_window_ns),
    ]
    heads = [*_heads(steps), "all steps"]
    if steps[0].which == "whole":
        times, heads = times[1:], heads[:1]
    exact = any(ns % 1000 for causes, *_ in times for ns in causes.values())
    rows = []
    for cause, word in IDLE.items():
        values = [(_of(causes, cause), whole) for causes, _, whole in times]
        if any(ns for ns, _ in values):
            rows.append(_row(word, values, exact=exact))
    totals = [(sum(causes.values()), whole) for causes, _, whole in times]
    rows.append(_row("idle together", totals, exact=exact))
    drained = [(ns, whole) for _, ns, whole in times]
    notes = [ADDED_UP]
    if any(ns for ns, _ in drained):
        rows.append(_row("… since the host had waited for the GPU", drained, exact=exact))
        notes.append(DRAINED)
    return _table(f"Why {device} stood still", "cause", heads, rows, notes)


def _way_table(steps: Sequence[StepAnatomy]) -> Table:
    exact = any(ns % 1000 for step in steps for ns in step.way_ns.values())
    rows = [
        _row(word, [(_of(step.way_ns, kind), step.window_ns) for step in steps], exact=exact)
        for kind, word in KINDS.items()
        if any(_of(step.way_ns, kind) for step in steps)
    ]
    rows.sort(key=lambda row: -float(row.cells[1].replace(",", "")))
    return _table("What the critical path leads through", "what", _heads(steps), rows, [])


def _of(times: Mapping[Any, int], kind: str) -> int:
    return times.get(kind, 0)


def _row(word: str, values: Sequence[tuple[int, int]], *, exact: bool) -> Row:
    cells = [word]
    for ns, whole in values:
        cells.append(f"{ns / 1000:,.3f}" if exact else f"{ns // 1000:,}")
        cells.append(f"{percent(100 * ns / whole)}%" if whole else "-")
    return Row(cells=tuple(cells))


def _table(
    title: str, first: str, heads: Sequence[str], rows: Sequence[Row], notes: Sequence[str]
) -> Table:
    columns = [Column(title=first, left=True)]
    for head in heads:
        columns += [Column(title=head, unit="µs"), Column(title="share")]
    return Table(title=title, columns=tuple(columns), rows=tuple(rows), notes=tuple(notes))


# Ranks under each other.


def _ranks(traces: Sequence[TraceAnatomy], straggler: int | None) -> RanksPicture | None:
    """One step of all ranks that have it: the first step that is drawn of the first rank."""
    having = [trace for trace in traces if trace.steps and trace.steps[0].strips]
    if len(having) < 2:
        return None
    name = having[0].steps[0].name
    what = _name(having[0].steps[0])
    same = [trace for trace in having if trace.steps[0].name == name]
    notes = [f"Rank {trace.rank} has no {what} to draw." for trace in traces if trace not in same]
    left = len(same) - MAX_RANKS
    if left > 0:
        notes.append(f"{plural(left, 'further rank')} are left out.")
    same = same[:MAX_RANKS]
    if len(same) < 2:
        return None
    begins, how = _aligned([trace.steps[0] for trace in same])
    notes.append(how)
    if straggler is not None:
        notes.append(f"The others wait for rank {straggler}: it comes last to the collectives.")
    strips = tuple(
        RankStrip(
            name=f"rank {trace.rank}"
            + (f", GPU {strip.device}" if len(trace.steps[0].strips) > 1 else ""),
            lane=strip,
            labels=trace.labels,
            begins_ns=begin,
            straggler=trace.rank == straggler,
        )
        for trace, begin in zip(same, begins, strict=True)
        for strip in trace.steps[0].strips
    )
    ends = (begin + trace.steps[0].window_ns for trace, begin in zip(same, begins, strict=True))
    return RanksPicture(
        title=f"{plural(len(same), 'rank')} under each other: {what}",
        window_ns=max(ends),
        strips=strips,
        notes=tuple(notes),
    )


def _aligned(steps: Sequence[StepAnatomy]) -> tuple[list[int], str]:
    """Where each rank's step begins in the picture, and how that was found."""
    last = {step.last_collective for step in steps}
    ends = [step.last_collective_ns for step in steps]
    known = [end for end in ends if end is not None]
    if len(last) == 1 and len(known) == len(ends):
        latest = max(known)
        return [latest - end for end in known], (
            "Clocks of hosts need not agree: the ranks are put beside each other so that the last "
            "collective of the step ends at one time."
        )
    return [0] * len(steps), (
        "Clocks of hosts need not agree: each rank begins with its own step, for they have no last "
        "collective in common."
    )
