"""What `analyze` found, as terminal text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import PurePath

from rich.cells import cell_len
from rich.text import Text

from ..records import (
    Analysis,
    Breakdown,
    CallTime,
    Collectives,
    Copies,
    KernelTime,
    Profile,
    StepTimes,
    TraceReport,
    Verdict,
)
from ..units import format_bytes, format_seconds
from .larger import larger_text
from .layout import Page
from .wording import evidence_text, percent, plural, share_of

UNKNOWN = "-"
GAP = 2
WORTH_A_COLUMN = 1.0
"""Percent lost to synchronisation, in any trace, from which on all show it."""
MIN_NAME = 14
"""Names of traces are cut so far, to their ends, before a column is left out."""
DROPPED_FIRST = (
    "tensor", "SM eff.", "ops", "copies", "sync.", "compute", "host's", "host", "busy",
    "communication", "calls", "comm.", "last in", "input", "occup.", "step time",
)  # fmt: skip
"""What a narrow terminal does without, least important first; the page says what it was."""
LEGEND = {
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


def render(
    analysis: Analysis,
    *,
    steps: bool = False,
    kernels: int = 0,
    next_command: str = "",
    width: int,
    color: bool,
    encoding: str = "utf-8",
) -> str:
    """The whole report.

    Args:
        steps: whether each step has a row.
        kernels: rows of the table of kernels, operators where no GPU worked; 0 leaves it out.
        next_command: what to type next.
        width: columns of the terminal.
        color: whether ANSI codes may be used.
        encoding: of the output; characters that it lacks are replaced.
    """
    page = Page(width, encoding)
    names = trace_names(analysis.traces)
    if analysis.verdict is not None:
        ranks = plural(len({one.rank for one in analysis.traces}), "rank")
        _verdict(page, analysis.verdict, f"{ranks} of one job")
    for report, name in zip(analysis.traces, names, strict=True):
        if analysis.verdict is None:
            _verdict(page, report.verdict, name)
    page.heading("Shares of the time")
    _traces(page, analysis.traces, names)
    _notes(page, analysis, names)
    if analysis.collectives is not None:
        _collectives(page, analysis.collectives)
    for report, name in zip(analysis.traces, names, strict=True):
        if steps and report.steps:
            page.heading(f"Steps of {name}")
            _steps(page, report.steps)
        if kernels:
            _kernels(page, report.profile, name, kernels)
    if next_command:
        page.blank()
        page.whole(next_command, label="Next: ", label_style="bold", indent=0)
    return page.render(color=color)


def _verdict(page: Page, verdict: Verdict, whose: str) -> None:
    page.heading(whose)
    style = "bold red" if verdict.limit == "cannot tell" else "bold"
    page.entry(verdict.message + ".", label=f"{verdict.limit}: ", label_style=style)
    evidence = evidence_text(verdict.evidence, verdict.message)
    if evidence:
        page.entry(evidence, style="dim", indent=4)
    page.entry(larger_text(verdict), indent=4)
    if verdict.remedy:
        page.entry(verdict.remedy, label="→ ", indent=4)


def trace_names(reports: Sequence[TraceReport]) -> list[str]:
    """Short names that tell the reports apart."""
    paths = [PurePath(one.trace) for one in reports]
    short = [one.name for one in paths]
    folders = {one.parent for one in paths}
    if len(folders) == len({one.name for one in folders}) > 1:
        # A run's traces: a folder for each size, with more than one where it was timed again.
        alone = Counter(one.parent for one in set(paths))
        short = [
            one.parent.name
            if alone[one.parent] == 1
            else f"{one.parent.name}/{one.name.partition('.')[0]}"
            for one in paths
        ]
    if len(set(short)) < len(set(paths)):
        short = [f"{one.parent.name}/{one.name}" for one in paths]
    names = []
    for one, name in zip(reports, short, strict=True):
        trimmed = name.removesuffix(".gz").removesuffix(".json").removesuffix(".pt.trace")
        several = sum(other.trace == one.trace for other in reports) > 1
        names.append(f"{trimmed} GPU {one.device}" if several else trimmed)
    return names


def _traces(page: Page, reports: Sequence[TraceReport], names: Sequence[str]) -> None:
    on_gpu = any(one.device is not None for one in reports)
    columns: dict[str, list[str]] = {"trace": [page.safe(name) for name in names]}
    columns["step time"] = [
        format_seconds(one.step_s) if one.step_s is not None else UNKNOWN for one in reports
    ]
    shares: dict[str, Callable[[Profile], float | None]] = {"ops": lambda one: one.operators_pct}
    if on_gpu:
        shares = {
            "busy": lambda one: one.busy_pct,
            "compute": lambda one: one.compute_pct,
            "comm.": lambda one: one.exposed_communication_pct,
            "copies": lambda one: one.exposed_copy_pct,
        }
    for title, value in shares.items():
        columns[title] = [_cell(value(one.profile)) for one in reports]
    columns["input"] = [_cell(_input(one)) for one in reports]
    if on_gpu:
        columns["host"] = [_cell(one.host_pct) for one in reports]
        if any((one.synchronisation_pct or 0.0) >= WORTH_A_COLUMN for one in reports):
            columns["sync."] = [_cell(one.synchronisation_pct) for one in reports]
        columns["SM eff."] = [_cell(one.profile.sm_efficiency_computing_pct) for one in reports]
        columns["occup."] = [_cell(one.profile.occupancy_pct) for one in reports]
        columns["tensor"] = [_tensor(one.profile) for one in reports]
    columns["limit"] = [one.verdict.limit for one in reports]
    shown = _table(page, columns, left=("trace", "limit"))
    legend = [text for title, text in LEGEND.items() if title in shown]
    if legend:
        page.entry("; ".join(["percent of the window", *legend]) + ".", style="dim")
    window = reports[0]
    if len(reports) == 1:
        source = "steps" if window.window_source == "steps" else window.window_source
        page.entry(
            f"window: {format_seconds(window.window_s)} ({source}"
            + (f", {plural(len(window.steps), 'step')}" if window.steps else "")
            + (f", step time from {window.step_source}" if window.step_source else "")
            + ")"
            + (f"; {window.device_name}" if window.device_name else ""),
            style="dim",
        )
        if window.breakdown is not None:
            whose = "a step" if window.steps else "the window"
            page.entry(f"{whose}, each moment counted once: {_parts(window.breakdown)}.")
        if window.profile.calls:
            page.entry(f"in the GPU's API: {'; '.join(map(_call, window.profile.calls))}.")
        if window.copies:
            page.entry(f"copies: {'; '.join(map(_copies, window.copies))}.")


PARTS = {
    "compute_s": "computing", "communication_s": "communication", "memcpy_s": "copies",
    "memset_s": "sets", "runtime_s": "calls of the GPU's API", "input_s": "DataLoader",
    "operator_s": "operators", "other_s": "other",
}  # fmt: skip
"""Parts of a breakdown, in the order in which a moment is given to them."""


def _parts(breakdown: Breakdown) -> str:
    """Times and shares of a breakdown, without those that are nothing."""
    return ", ".join(
        f"{text} {format_seconds(seconds)} ({share_of(seconds, breakdown.total_s)}%)"
        for field, text in PARTS.items()
        if (seconds := getattr(breakdown, field)) > 0
    )


def _copies(one: Copies) -> str:
    size = "" if one.num_bytes is None else f", {format_bytes(one.num_bytes)}"
    return f"{one.direction} {one.num_copies} in {format_seconds(one.total_s)}{size}"


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


def _notes(page: Page, analysis: Analysis, names: Sequence[str]) -> None:
    texts: dict[str, list[str]] = {}
    for report, name in zip(analysis.traces, names, strict=True):
        for note in report.notes:
            texts.setdefault(note, []).append(name)
    for note, own in texts.items():
        whose = "" if len(own) == len(names) else f"{', '.join(own[:3])}: "
        more = f" (and {len(own) - 3} more)" if whose and len(own) > 3 else ""
        page.entry(f"{whose}{note}{more}.", style="yellow")
    if analysis.verdict is None and len(analysis.traces) > 1:
        page.entry(
            f"Not compared rank by rank: {analysis.unavailable.get('collectives', 'not known')}.",
            style="dim",
        )
    if analysis.skipped:
        page.entry(
            f"Left out, no traces: {', '.join(PurePath(one).name for one in analysis.skipped)}.",
            style="dim",
        )


def _collectives(page: Page, collectives: Collectives) -> None:
    page.heading("Collectives, rank against rank")
    rows = collectives.ranks
    columns = {
        "rank": [str(one.rank) for one in rows],
        "communication": [format_seconds(one.communication_s) for one in rows],
        "transfer": [format_seconds(one.transfer_s) for one in rows],
        "waiting": [format_seconds(one.wait_s) for one in rows],
        "others waited": [format_seconds(one.caused_s) for one in rows],
        "last in": [str(one.num_last) for one in rows],
    }
    _table(page, columns, left=())
    text = f"{plural(collectives.num_matched, 'collective')} that all ranks have"
    if collectives.num_unmatched:
        text += f", {plural(collectives.num_unmatched, 'other kernel')} left out"
    world = collectives.world_size
    if world is not None and world > len(rows):
        text += f"; {len(rows)} of {world} ranks, so that the transfer is an upper bound"
    page.entry(f"{text}. The rank that comes last waits for nobody.", style="dim")
    if collectives.straggler is not None and collectives.straggler_share is not None:
        page.entry(
            f"Rank {collectives.straggler} causes {collectives.straggler_share:.0%} of the waiting."
        )


def _steps(page: Page, steps: Sequence[StepTimes]) -> None:
    columns = {
        "step": [page.safe(one.name.removeprefix("ProfilerStep#")) for one in steps],
        "window": [format_seconds(one.window_s) for one in steps],
        "host's": [format_seconds(one.host_s) for one in steps],
        "busy": [_cell(one.busy_pct) for one in steps],
        "compute": [_cell(one.compute_pct) for one in steps],
        "comm.": [_cell(one.exposed_communication_pct) for one in steps],
        "copies": [_cell(one.exposed_copy_pct) for one in steps],
        "input": [_cell(one.input_pct) for one in steps],
        "host": [_cell(one.host_pct) for one in steps],
    }
    if all(one.busy_pct is None for one in steps):
        columns = {title: columns[title] for title in ("step", "window", "host's")}
        for title, field in (("ops", "operator_s"), ("input", "input_s"), ("other", "other_s")):
            columns[title] = [_part(one.breakdown, field) for one in steps]
    _table(page, columns, left=())


def _kernels(page: Page, profile: Profile, name: str, number: int) -> None:
    if profile.kernels:
        page.heading(f"Kernels of {name}")
        kernels: Sequence[KernelTime] = profile.kernels[:number]
        columns = {
            "time": [format_seconds(one.total_s) for one in kernels],
            "calls": [str(one.num_calls) for one in kernels],
            "occup.": [_cell(one.occupancy_pct) for one in kernels],
        }
        texts = [one.name for one in kernels]
    else:
        page.heading(f"CPU operators of {name}")
        operators = profile.operators[:number]
        columns = {
            "time": [format_seconds(one.self_s) for one in operators],
            "calls": [str(one.num_calls) for one in operators],
        }
        texts = [one.name for one in operators]
        if not operators:
            page.entry("none")
            return
    room = page.width - sum(max(map(len, [t, *c])) + GAP for t, c in columns.items()) - GAP
    columns["name"] = [_cut(page.safe(one), max(room, 12)) for one in texts]
    _table(page, columns, left=("name",))


def _cut(text: str, room: int) -> str:
    return text if cell_len(text) <= room else text[: room - 3].rstrip() + "..."


def _table(page: Page, columns: dict[str, list[str]], left: Sequence[str]) -> list[str]:
    """Appends aligned columns, as many as fit, and what has no room; the titles that are shown."""
    every = list(columns)
    for title in DROPPED_FIRST:
        columns = _shorter_names(columns, page.width)
        if _width(columns) <= page.width:
            break
        columns = {key: cells for key, cells in columns.items() if key != title}
    if _width(columns) > page.width and "trace" in columns:
        rest = _width({key: cells for key, cells in columns.items() if key != "trace"})
        room = max(page.width - rest - GAP, 6)
        columns = {**columns, "trace": [_tail(one, room) for one in columns["trace"]]}
    widths = {key: max(map(cell_len, [key, *cells])) for key, cells in columns.items()}
    rows = [list(columns), *zip(*columns.values(), strict=True)]
    for number, row in enumerate(rows):
        text = ""
        for key, cell in zip(columns, row, strict=True):
            space = " " * (widths[key] - cell_len(cell))
            text += " " * GAP + (cell + space if key in left else space + cell)
        page.line(Text(text, style="dim" if number == 0 else ""))
    dropped = [title for title in every if title not in columns]
    if dropped:
        page.entry(f"no room at {page.width} columns for {', '.join(dropped)}.", style="dim")
    return list(columns)


def _shorter_names(columns: dict[str, list[str]], width: int) -> dict[str, list[str]]:
    """The columns with names cut to fit, where that is enough and they stay apart."""
    names = columns.get("trace", [])
    rest = _width({key: cells for key, cells in columns.items() if key != "trace"})
    room = width - rest - GAP
    short = [_tail(one, room) for one in names] if room >= MIN_NAME else names
    return {**columns, "trace": short} if names and len(set(short)) == len(set(names)) else columns


def _tail(text: str, room: int) -> str:
    return text if cell_len(text) <= room else "..." + text[-(room - 3) :]


def _width(columns: dict[str, list[str]]) -> int:
    return sum(max(map(cell_len, [key, *cells])) + GAP for key, cells in columns.items())
