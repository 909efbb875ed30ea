"""Tables of kernels and operators: what the time of a profiled step was spent on, and by whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ...records import Advice, KernelTime, Launcher, Profile, TraceReport
from ...units import format_seconds
from ..report import Column, LongTable, Row
from ..sizes import SizeRow
from ..words.wording import clean, plural

UNKNOWN = "-"
MAX_NAME = 320
"""Letters of a kernel's name; of templates some have thousands."""
STEADY = 0.25
"""Timed steps that differ by more (half-width of their interval) are no measure of others."""
TENSOR_CORES = {"yes": "yes", "no": "no", "cannot tell": "?", "": UNKNOWN}
NO_STACKS = (
    "The lines that launched them are not known: the trace holds no frames of Python "
    "(run --stacks, or with_stack=True of torch.profiler; torch 1.12 or newer)."
)
OCCUPANCY = "Occupancy: achieved, estimated."
BY_NAME = "Tensor cores: by the kernel's name; ? if it cannot tell."
OLDER = (
    "The record is of an older version: it does not say what it leaves out, nor what launched what."
)
LINES = "A line is where its function begins; the profiler does not tell the one inside it."


class Window(NamedTuple):
    """A profiled window as its tables count.

    Attributes:
        steps: profiled steps in it; 0 where the trace has none, and all counts are of the window.
        step_s: seconds of one, timed or profiled, of which shares are taken; of the window without
            steps. `None` where it is not known.
        timed: whether `step_s` is that of a step that nothing profiled.
    """

    steps: int
    step_s: float | None
    timed: bool = False

    @property
    def divisor(self) -> int:
        """What totals are divided by."""
        return max(self.steps, 1)

    @property
    def word(self) -> str:
        """What counts and times are of."""
        return "step" if self.steps else "window"


class Cell(NamedTuple):
    """A cell: what is shown, and what it is sorted by; `None` comes last."""

    text: str
    key: float | str | None = None


class Part(NamedTuple):
    """A column with its cells."""

    title: str
    unit: str
    left: bool
    cells: list[Cell]


def window_of(row: SizeRow) -> Window:
    """The window of a size of a run.

    What a GPU did is put beside a timed step where that is shorter, and steady enough to tell:
    profiling slows the host.
    """
    profile = row.profile or Profile()
    profiled, timed = profile.step_s, row.step_s
    steady = timed is not None and timed.relative_half_width <= STEADY
    if profile.kernels and steady and timed is not None and timed.median < (profiled or 0.0):
        return Window(profile.num_steps, timed.median, timed=True)
    return Window(profile.num_steps, profiled)


def window_of_trace(report: TraceReport) -> Window:
    """The window of a trace without a run."""
    steps = report.profile.num_steps
    return Window(steps, report.window_s / max(steps, 1) if report.window_s > 0 else None)


def hot_row(rows: Sequence[SizeRow], advice: Advice) -> SizeRow | None:
    """The size whose kernels are shown: the recommended one, else the largest profiled one."""
    profiled = [row for row in rows if row.profile is not None and is_listed(row.profile)]
    wanted = advice.recommended.batch_size if advice.recommended is not None else None
    chosen = next((row for row in profiled if row.batch_size == wanted), None)
    return chosen or (profiled[-1] if profiled else None)


def is_listed(profile: Profile) -> bool:
    """Whether there is anything to list."""
    return bool(profile.kernels or profile.operators)


def hot_tables(
    profile: Profile, window: Window, where: str, most: int | None = None
) -> tuple[LongTable, ...]:
    """Kernels, where a GPU worked, and operators.

    Args:
        window: of the profile.
        where: whose they are, as the titles end: ` at batch size 8`.
        most: rows that are shown of those that are listed, in their order.
    """
    tables = []
    if profile.kernels:
        tables.append(_kernels(profile, window, where, most))
    if profile.operators:
        tables.append(_operators(profile, window, where, most))
    if most is not None:
        tables = [msgspec.structs.replace(table, keys=()) for table in tables]
    return tuple(tables)


def _kernels(profile: Profile, window: Window, where: str, most: int | None) -> LongTable:
    kernels = profile.kernels[:most]
    whole = profile.kernels_s or sum(kernel.total_s for kernel in profile.kernels)
    parts = [
        Part("kernel", "", True, [name_cell(kernel.name) for kernel in kernels]),
        Part("of all kernels" if profile.kernels_s else "of those listed", "%", False,
              [_share(kernel.total_s, whole) for kernel in kernels]),
        *_times([(kernel.total_s, kernel.num_calls) for kernel in kernels], window),
        Part("occupancy", "%", False, [_percent(kernel.occupancy_pct) for kernel in kernels]),
        Part("tensor cores", "", False, [_tensor(kernel) for kernel in kernels]),
        Part("launched in", "", True,
              [_operators_of(kernel) for kernel in kernels]),
        Part("from", "", True,
              [_lines(kernel.launchers, kernel.num_launchers) for kernel in kernels]),
    ]  # fmt: skip
    notes = [
        _counted(
            window, "kernel", [kernel.total_s for kernel in kernels], (whole, profile.num_kernels)
        ),
        _occupancy_note(profile),
    ]
    if any(kernel.tensor_cores for kernel in kernels):
        notes.append(BY_NAME)
    if not profile.stacks and any(kernel.launchers for kernel in kernels):
        notes.append(NO_STACKS)
    return table_of(f"Kernels{where}", parts, [*notes, *_more_notes(profile)])


def _operators(profile: Profile, window: Window, where: str, most: int | None) -> LongTable:
    operators = profile.operators[:most]
    whole = profile.operators_s or sum(operator.self_s for operator in profile.operators)
    if window.timed:  # profiling slows the host, and these are its times
        window = Window(profile.num_steps, profile.step_s)
    parts = [
        Part("operator", "", True, [name_cell(operator.name) for operator in operators]),
        Part("of all operators" if profile.operators_s else "of those listed", "%", False,
             [_share(operator.self_s, whole) for operator in operators]),
        *_times([(one.self_s, one.num_calls) for one in operators], window),
        Part("on the GPU", f"per {window.word}", False,
             [_time(operator.device_s, window.divisor) for operator in operators]),
        Part("called from", "", True,
             [_lines(operator.callers, operator.num_callers) for operator in operators]),
    ]  # fmt: skip
    notes = [
        _counted(
            window, "operator", [one.self_s for one in operators], (whole, profile.num_operators)
        ),
        "Time on the CPU: self time, without operators inside, summed over threads.",
    ]
    if not profile.stacks and not profile.kernels:
        notes.append(NO_STACKS.replace("launched", "called"))
    return table_of(f"CPU operators{where}", parts, [*notes, *_more_notes(profile)])


def _occupancy_note(profile: Profile) -> str:
    if any(kernel.occupancy_pct is not None for kernel in profile.kernels):
        return OCCUPANCY
    why = profile.unavailable.get("occupancy_pct", "the record does not say why")
    return clean(f"Occupancy is not known: {why}.")


def _more_notes(profile: Profile) -> list[str]:
    notes = [LINES] if profile.stacks else []
    return [*notes, OLDER] if profile.num_operators is None else notes


def table_of(title: str, parts: Sequence[Part], notes: Sequence[str]) -> LongTable:
    """A table of the columns that say anything."""
    shown = [part for part in parts if any(cell.text != UNKNOWN for cell in part.cells)]
    rows = list(zip(*(part.cells for part in shown), strict=True))
    return LongTable(
        title=clean(title),
        columns=tuple(Column(title=part.title, unit=part.unit, left=part.left) for part in shown),
        rows=tuple(Row(cells=tuple(cell.text for cell in row)) for row in rows),
        keys=tuple(tuple(cell.key for cell in row) for row in rows),
        notes=tuple(notes),
    )


def _counted(
    window: Window, what: str, listed: Sequence[float], of: tuple[float, int | None]
) -> str:
    """What the counts are of, and what is not listed.

    Args:
        listed: seconds of each row.
        of: seconds of all, and how many there are.
    """
    text = f"Of {plural(window.steps, 'profiled step')}" if window.steps else "Of the whole window"
    if window.timed:
        text += ", shares of a step that nothing profiled"
    whole_s, number = of
    left = (number or 0) - len(listed)
    if left <= 0:
        return f"{text}."
    share = 100 * (1 - sum(listed) / whole_s) if whole_s > 0 else 0.0
    return f"{text}. Not listed: {plural(left, f'further {what}')} with {share:.1f}% of the time."


def _times(values: Sequence[tuple[float, int]], window: Window) -> list[Part]:
    steps = window.divisor
    return [
        Part(f"of the {window.word}", "%", False,
              [_share(total / steps, window.step_s) for total, _ in values]),
        Part("time", f"per {window.word}", False, [_time(total, steps) for total, _ in values]),
        Part("calls", f"per {window.word}", False,
              [Cell(_count(calls / steps), calls / steps) for _, calls in values]),
        Part("mean", "per call", False,
              [_time(total, calls) if calls else Cell(UNKNOWN) for total, calls in values]),
    ]  # fmt: skip


def name_cell(name: str) -> Cell:
    """A kernel or operator; the type that a C++ function returns says nothing."""
    text = clean(name.removeprefix("void "), limit=MAX_NAME)
    return Cell(text, text.lower())


def _count(calls: float) -> str:
    return f"{calls:.0f}" if calls == round(calls) else f"{calls:.1f}"


def _share(part: float, whole: float | None) -> Cell:
    if whole is None or whole <= 0:
        return Cell(UNKNOWN)
    share = 100 * part / whole
    return Cell("<0.1" if 0 < share < 0.05 else f"{share:.1f}", round(share, 6))


def _percent(value: float | None) -> Cell:
    return Cell(UNKNOWN) if value is None else Cell(f"{value:.0f}" if value >= 1 else "<1", value)


def _time(seconds: float | None, divisor: int) -> Cell:
    if seconds is None:
        return Cell(UNKNOWN)
    return Cell(format_seconds(seconds / divisor), seconds / divisor)


def _tensor(kernel: KernelTime) -> Cell:
    order = {"yes": 0.0, "cannot tell": 1.0, "no": 2.0}
    return Cell(TENSOR_CORES[kernel.tensor_cores], order.get(kernel.tensor_cores))


def _operators_of(kernel: KernelTime) -> Cell:
    """The operators that launched a kernel, with the share of each where they are several."""
    times: dict[str, float] = {}
    for launcher in kernel.launchers:
        name = launcher.operator or "no operator"
        times[name] = times.get(name, 0.0) + launcher.total_s
    if not times:
        return Cell(UNKNOWN)
    whole = sum(times.values())
    names = [
        f"{name} {100 * time / whole:.0f}%" if len(times) > 1 and whole > 0 else name
        for name, time in times.items()
    ]
    text = clean(", ".join(names))
    unknown = kernel.num_calls - sum(launcher.num_calls for launcher in kernel.launchers)
    if unknown and kernel.num_launchers <= len(kernel.launchers):
        text += f" ({unknown} of {kernel.num_calls} launches not known)"
    return Cell(text, text.lower())


def _lines(launchers: Sequence[Launcher], number: int) -> Cell:
    """The first place, and how many others there are."""
    places = [text for text in map(place_text, launchers) if text]
    if not places:
        return Cell(UNKNOWN)
    others = f", {plural(number - 1, 'more place')}" if number > 1 else ""
    text = clean(f"{places[0]}{others}")
    return Cell(text, text.lower())


def place_text(launcher: Launcher) -> str:
    """`model.py(12): forward, 3x Linear, backward pass`; empty without stacks.

    >>> place_text(Launcher(line="a.py(1): f", module="Linear", num_modules=3, num_calls=1,
    ...     total_s=1.0))
    'a.py(1): f, 3x Linear'
    """
    words = [_short_path(launcher.line)] if launcher.line else []
    if launcher.module:
        several = f"{launcher.num_modules}x " if launcher.num_modules > 1 else ""
        words.append(f"{several}{launcher.module}")
    if words and launcher.backward:
        words.append("backward pass")
    return ", ".join(words)


def _short_path(line: str) -> str:
    """The last folder, file and function of a place.

    >>> _short_path("transformers/models/qwen2/modeling_qwen2.py(56): forward")
    'qwen2/modeling_qwen2.py(56): forward'
    """
    path, colon, function = line.replace("\\", "/").partition("): ")
    return "/".join(path.split("/")[-2:]) + colon + function
