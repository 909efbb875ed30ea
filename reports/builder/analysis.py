"""The page of `analyze`: what limits the steps of traces, and where their time goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath

import msgspec

from ...records import (
    Analysis,
    Breakdown,
    CallTime,
    Collectives,
    Copies,
    Launcher,
    Profile,
    StepTimes,
    TraceReport,
    Verdict,
)
from ...units import format_bytes, format_seconds
from ..blocks import Document, Grid, Paragraph, Section, Tone, paragraphs
from ..report import Column, LimitText, Row, Table
from ..words.traces import trace_names
from ..words.wording import clean, percent, plural, share_of
from .sections.limit import limit_text

UNKNOWN = "-"
MOST_ORIGIN = 28
TENSOR_CORES = {"yes": "yes", "no": "no", "cannot tell": "?", "": UNKNOWN}
WORTH_A_COLUMN = 1.0
"""Percent lost to synchronisation, in any trace, from which on all show it."""
LEFT = ("trace", "limit", "name", "from")
DROPPED_FIRST = (
    "from", "tensor", "SM eff.", "ops", "copies", "sync.", "compute", "host's", "host", "busy",
    "communication", "calls", "comm.", "last in", "input", "occup.", "step time",
)  # fmt: skip
"""Columns that a narrow window leaves out, least important first; the page has them."""
LEGEND = {
    "trace": "percent of the window",
    "busy": "busy: anything ran on the GPU",
    "compute": "compute: kernels other than communication",
    "comm.": "comm.: communication that no computation covers",
    "copies": "copies: while no kernel ran",
    "input": "input: waiting for the DataLoader, on a GPU only while it stood still",
    "host": "host: the GPU stood still for Python or a launch",
    "sync.": "sync.: it stood still because the host had waited for it",
    "SM eff.": "SM eff.: at most, while computing",
    "occup.": "occup.: estimated",
    "tensor": "tensor: kernel time surely on tensor cores, + what kernels' names cannot tell",
    "ops": "ops: inside CPU operators",
}
PARTS = {
    "compute_s": "computing", "communication_s": "communication", "memcpy_s": "copies",
    "memset_s": "sets", "runtime_s": "calls of the GPU's API", "input_s": "DataLoader",
    "operator_s": "operators", "other_s": "other",
}  # fmt: skip
"""Parts of a breakdown, in the order in which a moment is given to them."""


def build_analysis(analysis: Analysis, *, steps: bool = False, kernels: int = 0) -> Document:
    """What a window of text shows of traces; `builder/traces.py` makes their page of drawings.

    Args:
        steps: whether each step has a row.
        kernels: rows of the table of kernels, operators where no GPU worked; 0 leaves it out.
    """
    names = trace_names(analysis.traces)
    if analysis.verdict is not None:
        ranks = plural(len({trace.rank for trace in analysis.traces}), "rank")
        verdicts = [(f"{ranks} of one job", analysis.verdict)]
    else:
        verdicts = [
            (name, report.verdict) for name, report in zip(names, analysis.traces, strict=True)
        ]
    sections = [Section(title=clean(whose), blocks=(_limit(each),)) for whose, each in verdicts]
    sections.append(_shares(analysis, names))
    if analysis.collectives is not None:
        sections.append(_collectives(analysis.collectives))
    for report, name in zip(analysis.traces, names, strict=True):
        if steps and report.steps:
            sections.append(_section(f"Steps of {name}", _steps(report.steps)))
        if kernels:
            sections.append(_kernels(report.profile, name, kernels))
    limits = dict.fromkeys(verdict.limit for _, verdict in verdicts)
    return Document(
        title="traces",
        headline=f"What limits the steps: {', '.join(limits)}",
        blocks=tuple(sections),
    )


def _limit(verdict: Verdict) -> LimitText:
    text = limit_text(verdict)
    return msgspec.structs.replace(text, message=f"{text.message}.", numbers=None)


def _grid(
    title: str,
    columns: Mapping[str, Sequence[str]],
    *,
    cut: bool = False,
    legend: Mapping[str, str] | None = None,
) -> Grid:
    rows = zip(*columns.values(), strict=True)
    table = Table(
        title=clean(title),
        columns=tuple(Column(title=name, left=name in LEFT) for name in columns),
        rows=tuple(Row(cells=tuple(map(clean, cells))) for cells in rows),
    )
    return _grid_of(table, cut=cut, legend=legend)


def _grid_of(table: Table, *, cut: bool = False, legend: Mapping[str, str] | None = None) -> Grid:
    return Grid(
        table=table, dropped_first=DROPPED_FIRST, ends="trace", cut=cut, legend=dict(legend or {})
    )


def _section(title: str, columns: Mapping[str, Sequence[str]], *, cut: bool = False) -> Section:
    return Section(title=clean(title), blocks=(_grid(title, columns, cut=cut),))


def _shares(analysis: Analysis, names: Sequence[str]) -> Section:
    title = "Shares of the time"
    grid = _grid(title, _traces(analysis.traces, names), legend=LEGEND)
    alone = _alone(analysis.traces[0]) if len(analysis.traces) == 1 else ()
    return Section(title=title, blocks=(grid, *alone, *_notes(analysis, names)))


def _traces(reports: Sequence[TraceReport], names: Sequence[str]) -> dict[str, list[str]]:
    on_gpu = any(report.device is not None for report in reports)
    columns: dict[str, list[str]] = {"trace": list(names)}
    columns["step time"] = [
        format_seconds(report.step_s) if report.step_s is not None else UNKNOWN
        for report in reports
    ]
    shares: dict[str, Callable[[Profile], float | None]] = {
        "ops": lambda profile: profile.operators_pct
    }
    if on_gpu:
        shares = {
            "busy": lambda profile: profile.busy_pct,
            "compute": lambda profile: profile.compute_pct,
            "comm.": lambda profile: profile.exposed_communication_pct,
            "copies": lambda profile: profile.exposed_copy_pct,
        }
    for title, value in shares.items():
        columns[title] = [_cell(value(report.profile)) for report in reports]
    columns["input"] = [_cell(_input(report)) for report in reports]
    if on_gpu:
        columns["host"] = [_cell(report.host_pct) for report in reports]
        if any((report.synchronisation_pct or 0.0) >= WORTH_A_COLUMN for report in reports):
            columns["sync."] = [_cell(report.synchronisation_pct) for report in reports]
        columns["SM eff."] = [
            _cell(report.profile.sm_efficiency_computing_pct) for report in reports
        ]
        columns["occup."] = [_cell(report.profile.occupancy_pct) for report in reports]
        columns["tensor"] = [_tensor(report.profile) for report in reports]
    columns["limit"] = [report.verdict.limit for report in reports]
    return columns


def _alone(window: TraceReport) -> tuple[Paragraph, ...]:
    """What is said of a trace that is shown by itself."""
    source = "steps" if window.window_source == "steps" else window.window_source
    shown = (
        f"window: {format_seconds(window.window_s)} ({source}"
        + (f", {plural(len(window.steps), 'step')}" if window.steps else "")
        + (f", step time from {window.step_source}" if window.step_source else "")
        + ")"
        + (f"; {window.device_name}" if window.device_name else "")
    )
    said = []
    if window.breakdown is not None:
        whose = "a step" if window.steps else "the window"
        said.append(f"{whose}, each moment counted once: {_parts(window.breakdown)}.")
    if window.profile.calls:
        said.append(f"in the GPU's API: {'; '.join(map(_call, window.profile.calls))}.")
    if window.copies:
        said.append(f"copies: {'; '.join(map(_copies, window.copies))}.")
    return (*_said([shown], "dim"), *_said(said))


def _said(texts: Sequence[str], tone: Tone = "plain") -> tuple[Paragraph, ...]:
    return paragraphs(map(clean, texts), tone)


def _parts(breakdown: Breakdown) -> str:
    """Times and shares of a breakdown, without those that are nothing."""
    return ", ".join(
        f"{text} {format_seconds(seconds)} ({share_of(seconds, breakdown.total_s)}%)"
        for field, text in PARTS.items()
        if (seconds := getattr(breakdown, field)) > 0
    )


def _copies(copies: Copies) -> str:
    size = "" if copies.num_bytes is None else f", {format_bytes(copies.num_bytes)}"
    return f"{copies.direction} {copies.num_copies} in {format_seconds(copies.total_s)}{size}"


def _call(call: CallTime) -> str:
    return (
        f"{call.name} for {percent(call.share_pct)}% of the window "
        f"({plural(call.num_calls, 'call')}, the longest {format_seconds(call.longest_s)})"
    )


def _input(report: TraceReport) -> float | None:
    profile = report.profile
    if profile.input_wait_pct is None and "input_wait_pct" in profile.unavailable:
        return None
    return profile.input_wait_pct if report.input_pct is None else report.input_pct


def _tensor(profile: Profile) -> str:
    known, unknown = profile.tensor_core_pct, profile.tensor_core_unknown_pct
    if known is None:
        return UNKNOWN
    return f"{percent(known)}+{percent(unknown)}?" if unknown else percent(known)


def _part(breakdown: Breakdown | None, field: str) -> str:
    return UNKNOWN if breakdown is None else share_of(getattr(breakdown, field), breakdown.total_s)


def _cell(value: float | None) -> str:
    return UNKNOWN if value is None else percent(value)


def _notes(analysis: Analysis, names: Sequence[str]) -> tuple[Paragraph, ...]:
    texts: dict[str, list[str]] = {}
    for report, name in zip(analysis.traces, names, strict=True):
        for note in report.notes:
            texts.setdefault(note, []).append(name)
    warned, left = [], []
    for note, own in texts.items():
        whose = "" if len(own) == len(names) else f"{', '.join(own[:3])}: "
        more = f" (and {len(own) - 3} more)" if whose and len(own) > 3 else ""
        warned.append(f"{whose}{note}{more}.")
    if analysis.verdict is None and len(analysis.traces) > 1:
        reason = analysis.unavailable.get("collectives", "not known")
        left.append(f"Not compared rank by rank: {reason}.")
    if analysis.skipped:
        paths = ", ".join(PurePath(path).name for path in analysis.skipped)
        left.append(f"Left out, no traces: {paths}.")
    return (*_said(warned, "warning"), *_said(left, "dim"))


def collectives_table(collectives: Collectives) -> Table:
    """How long each rank waited for others, and others for it."""
    text = f"{plural(collectives.num_matched, 'collective')} that all ranks have"
    if collectives.num_unmatched:
        text += f", {plural(collectives.num_unmatched, 'other kernel')} left out"
    num, world = len(collectives.ranks), collectives.world_size
    if world is not None and world > num:
        text += f"; {num} of {world} ranks, so that the transfer is an upper bound"
    notes = [f"{text}. The rank that comes last waits for nobody."]
    if collectives.straggler is not None and collectives.straggler_share is not None:
        share = f"{collectives.straggler_share:.0%}"
        notes.append(f"Rank {collectives.straggler} causes {share} of the waiting.")
    titles = ("rank", "communication", "transfer", "waiting", "others waited", "last in")
    return Table(
        title="Collectives, rank against rank",
        columns=tuple(Column(title=title) for title in titles),
        rows=tuple(
            Row(
                cells=(
                    str(rank.rank),
                    format_seconds(rank.communication_s),
                    format_seconds(rank.transfer_s),
                    format_seconds(rank.wait_s),
                    format_seconds(rank.caused_s),
                    str(rank.num_last),
                )
            )
            for rank in collectives.ranks
        ),
        notes=tuple(notes),
    )


def _collectives(collectives: Collectives) -> Section:
    table = collectives_table(collectives)
    first, *others = table.notes
    grid = _grid_of(msgspec.structs.replace(table, notes=()))
    return Section(title=table.title, blocks=(grid, *_said([first], "dim"), *_said(others)))


def _steps(steps: Sequence[StepTimes]) -> dict[str, list[str]]:
    columns = {
        "step": [step.name.removeprefix("ProfilerStep#") for step in steps],
        "window": [format_seconds(step.window_s) for step in steps],
        "host's": [format_seconds(step.host_s) for step in steps],
        "busy": [_cell(step.busy_pct) for step in steps],
        "compute": [_cell(step.compute_pct) for step in steps],
        "comm.": [_cell(step.exposed_communication_pct) for step in steps],
        "copies": [_cell(step.exposed_copy_pct) for step in steps],
        "input": [_cell(step.input_pct) for step in steps],
        "host": [_cell(step.host_pct) for step in steps],
    }
    if all(step.busy_pct is None for step in steps):
        columns = {title: columns[title] for title in ("step", "window", "host's")}
        for title, field in (("ops", "operator_s"), ("input", "input_s"), ("other", "other_s")):
            columns[title] = [_part(step.breakdown, field) for step in steps]
    return columns


def _kernels(profile: Profile, name: str, number: int) -> Section:
    if profile.kernels:
        title = f"Kernels of {name}"
        kernels = profile.kernels[:number]
        whole = profile.kernels_s or 0.0
        columns = {
            **_times([(kernel.total_s, kernel.num_calls) for kernel in kernels], whole),
            "occup.": [_cell(kernel.occupancy_pct) for kernel in kernels],
            "tensor": [TENSOR_CORES[kernel.tensor_cores] for kernel in kernels],
        }
        origins = [_origin(kernel.launchers, "operator") for kernel in kernels]
        texts = [kernel.name.removeprefix("void ") for kernel in kernels]
    else:
        title = f"CPU operators of {name}"
        operators = profile.operators[:number]
        if not operators:
            return Section(title=clean(title), blocks=paragraphs(["none"]))
        whole = profile.operators_s or 0.0
        columns = _times([(each.self_s, each.num_calls) for each in operators], whole)
        origins = [_origin(operator.callers, "line") for operator in operators]
        texts = [operator.name for operator in operators]
    columns = {title: cells for title, cells in columns.items() if set(cells) - {UNKNOWN}}
    if any(origins):
        columns["from"] = [origin or UNKNOWN for origin in origins]
    columns["name"] = texts
    return _section(title, columns, cut=True)


def _times(rows: Sequence[tuple[float, int]], whole_s: float) -> dict[str, list[str]]:
    """The columns of times.

    Args:
        rows: seconds and number of calls of each.
        whole_s: of all rows, those that are not shown among them.
    """
    return {
        "time": [format_seconds(total_s) for total_s, _ in rows],
        "%": [share_of(total_s, whole_s) for total_s, _ in rows],
        "calls": [str(num_calls) for _, num_calls in rows],
        "mean": [_mean(total_s, num_calls) for total_s, num_calls in rows],
    }


def _mean(total_s: float, num_calls: int) -> str:
    return format_seconds(total_s / num_calls) if num_calls else UNKNOWN


def _origin(launchers: Sequence[Launcher], field: str) -> str:
    """The operator or the line that most of the time comes from."""
    text: str = getattr(launchers[0], field) if launchers else ""
    name = clean(text.rpartition("/")[2])
    return name if len(name) <= MOST_ORIGIN else name[: MOST_ORIGIN - 3].rstrip() + "..."
