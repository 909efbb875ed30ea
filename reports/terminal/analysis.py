"""The result of `analyze` as terminal text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath

from rich.cells import cell_len
from rich.text import Text

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
from ..words.larger import larger_text
from ..words.traces import trace_names
from ..words.wording import evidence_text, percent, plural, share_of
from .page import Page

UNKNOWN = "-"
WIDE_PAGE = 120
"""Columns from which on it is shown where kernels and operators come from."""
MOST_ORIGIN = 28
TENSOR_CORES = {"yes": "yes", "no": "no", "cannot tell": "?", "": UNKNOWN}
WORTH_A_COLUMN = 1.0
"""Percent lost to synchronisation, in any trace, from which on all show it."""
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
PARTS = {
    "compute_s": "computing", "communication_s": "communication", "memcpy_s": "copies",
    "memset_s": "sets", "runtime_s": "calls of the GPU's API", "input_s": "DataLoader",
    "operator_s": "operators", "other_s": "other",
}  # fmt: skip
"""Parts of a breakdown, in the order in which a moment is given to them."""


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
        ranks = plural(len({trace.rank for trace in analysis.traces}), "rank")
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


def _traces(page: Page, reports: Sequence[TraceReport], names: Sequence[str]) -> None:
    on_gpu = any(report.device is not None for report in reports)
    columns: dict[str, list[str]] = {"trace": [page.safe(name) for name in names]}
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
    shown = add_columns(page, columns, left=("trace", "limit"))
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
            f"Left out, no traces: {', '.join(PurePath(path).name for path in analysis.skipped)}.",
            style="dim",
        )


def _collectives(page: Page, collectives: Collectives) -> None:
    page.heading("Collectives, rank against rank")
    rows = collectives.ranks
    columns = {
        "rank": [str(row.rank) for row in rows],
        "communication": [format_seconds(row.communication_s) for row in rows],
        "transfer": [format_seconds(row.transfer_s) for row in rows],
        "waiting": [format_seconds(row.wait_s) for row in rows],
        "others waited": [format_seconds(row.caused_s) for row in rows],
        "last in": [str(row.num_last) for row in rows],
    }
    add_columns(page, columns, left=())
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
        "step": [page.safe(step.name.removeprefix("ProfilerStep#")) for step in steps],
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
    add_columns(page, columns, left=())


def _kernels(page: Page, profile: Profile, name: str, number: int) -> None:
    if profile.kernels:
        page.heading(f"Kernels of {name}")
        kernels = profile.kernels[:number]
        whole = profile.kernels_s or 0.0
        columns = {
            "time": [format_seconds(kernel.total_s) for kernel in kernels],
            "%": [share_of(kernel.total_s, whole) for kernel in kernels],
            "calls": [str(kernel.num_calls) for kernel in kernels],
            "mean": [_mean(kernel.total_s, kernel.num_calls) for kernel in kernels],
            "occup.": [_cell(kernel.occupancy_pct) for kernel in kernels],
            "tensor": [TENSOR_CORES[kernel.tensor_cores] for kernel in kernels],
        }
        origins = [_origin(page, kernel.launchers, "operator") for kernel in kernels]
        texts = [kernel.name.removeprefix("void ") for kernel in kernels]
    else:
        page.heading(f"CPU operators of {name}")
        operators = profile.operators[:number]
        if not operators:
            page.entry("none")
            return
        whole = profile.operators_s or 0.0
        columns = {
            "time": [format_seconds(operator.self_s) for operator in operators],
            "%": [share_of(operator.self_s, whole) for operator in operators],
            "calls": [str(operator.num_calls) for operator in operators],
            "mean": [_mean(operator.self_s, operator.num_calls) for operator in operators],
        }
        origins = [_origin(page, operator.callers, "line") for operator in operators]
        texts = [operator.name for operator in operators]
    columns = {title: cells for title, cells in columns.items() if set(cells) - {UNKNOWN}}
    if page.width >= WIDE_PAGE and any(origins):
        columns["from"] = [origin or UNKNOWN for origin in origins]
    room = page.width - sum(max(map(len, [t, *c])) + GAP for t, c in columns.items()) - GAP
    columns["name"] = [_cut(page.safe(text), max(room, 12)) for text in texts]
    add_columns(page, columns, left=("name", "from"))


def _mean(total_s: float, num_calls: int) -> str:
    return format_seconds(total_s / num_calls) if num_calls else UNKNOWN


def _origin(page: Page, launchers: Sequence[Launcher], field: str) -> str:
    """The operator or the line that most of the time comes from."""
    text: str = getattr(launchers[0], field) if launchers else ""
    return _cut(page.safe(text.rpartition("/")[2]), MOST_ORIGIN)


def _cut(text: str, room: int) -> str:
    return text if cell_len(text) <= room else text[: room - 3].rstrip() + "..."


# Aligned columns that give way to narrow windows.

GAP = 2
MIN_NAME = 14
"""Names of traces are cut so far, to their ends, before a column is left out."""
DROPPED_FIRST = (
    "tensor", "SM eff.", "ops", "copies", "sync.", "compute", "host's", "host", "busy",
    "communication", "calls", "comm.", "last in", "input", "occup.", "step time",
)  # fmt: skip
"""Columns that a narrow terminal leaves out, least important first; the page has them."""


def add_columns(page: Page, columns: dict[str, list[str]], left: Sequence[str]) -> list[str]:
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
        columns = {**columns, "trace": [_tail(name, room) for name in columns["trace"]]}
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
    short = [_tail(name, room) for name in names] if room >= MIN_NAME else names
    return {**columns, "trace": short} if names and len(set(short)) == len(set(names)) else columns


def _tail(text: str, room: int) -> str:
    return text if cell_len(text) <= room else "..." + text[-(room - 3) :]


def _width(columns: dict[str, list[str]]) -> int:
    return sum(max(map(cell_len, [key, *cells])) + GAP for key, cells in columns.items())
