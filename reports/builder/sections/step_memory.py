"""Where the memory of a step goes: tables and a timeline of a step on fake tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from ....records import FakeTrial, HeldSource, PeakRole, PeakSource, StepTimeline
from ....units import GIB, MIB, format_bytes
from ...chart import Chart, Mark, Series, rounded
from ...report import Column, Fact, MemorySection, Row, Table
from ...words.wording import clean, plural

NAMES: Mapping[str, str] = {
    "optimizer's state": "optimizer state",
    "backward": "temporaries of the backward pass",
    "optimizer's temporaries": "temporaries of the optimizer",
}
"""Clearer names for roles whose own name says too little."""
COLORS: Mapping[str, int] = {
    "kept from before": 8,
    "parameters": 1,
    "optimizer's state": 7,
    "gradients": 3,
    "batch": 6,
    "activations": 2,
    "loss and logits": 5,
    "backward": 4,
    "optimizer's temporaries": 4,
}
"""Slots of the palette by role, in the order in which they lie on each other, the lowest first."""
NO_MODULE = "outside of modules"
NO_LINE = "lived as the step began"
LINES_NOTE = (
    "Gradients and temporaries of the backward pass stand at the line that started it. What lived "
    "as the step began was made by no line of it."
)
MODULES_NOTE = (
    "Classes of the innermost modules; equal ones are added up. Parameters, their gradients and "
    "the optimizer state belong to the module that holds them."
)


def step_section(
    trial: FakeTrial, *, name: str, key: str, facts: Sequence[tuple[str, str]] = ()
) -> MemorySection:
    """The section on a step on fake tensors.

    Args:
        name: of the section.
        key: tells its chart from others of the page.
        facts: label and text, shown above the tables.
    """
    tables = [_categories(trial)]
    tables += [
        _sources(trial, trial.modules, what="module", unnamed=NO_MODULE, note=MODULES_NOTE),
        _sources(trial, trial.lines, what="line of code", unnamed=NO_LINE, note=LINES_NOTE),
    ]
    return MemorySection(
        name=clean(name),
        facts=tuple(Fact(label=clean(label), text=clean(text)) for label, text in facts),
        tables=tuple(table for table in tables if table.rows),
        charts=() if trial.timeline is None else (_chart(trial.timeline, trial.batch_size, key),),
    )


def on_one_scale(*charts: Chart) -> tuple[Chart, ...]:
    """Charts of memory in one unit, their axes as high as the highest of them."""
    scales = {"GiB": GIB, "MiB": MIB, "KiB": 1024.0}
    tops = [_highest(chart) * scales[chart.unit] for chart in charts]
    unit, scale = memory_unit(max(tops))
    return tuple(
        _in_unit(chart, unit, scales[chart.unit] / scale, max(tops) / scale) for chart in charts
    )


def _highest(chart: Chart) -> float:
    if chart.areas:
        known = [[value or 0.0 for value in line.values] for line in chart.series]
        return max(map(sum, zip(*known, strict=True)), default=0.0)
    return max((value or 0.0 for line in chart.series for value in line.values), default=0.0)


def _in_unit(chart: Chart, unit: str, factor: float, top: float) -> Chart:
    series = tuple(
        msgspec.structs.replace(
            line,
            values=tuple(
                None if value is None else rounded(value * factor) for value in line.values
            ),
        )
        for line in chart.series
    )
    return msgspec.structs.replace(
        chart, series=series, unit=unit, y_label=unit, y_high=rounded(top) or 0.0
    )


def category(role: str) -> str:
    """A role as people read it."""
    return NAMES.get(role, role)


def by_category(at_peak: Mapping[PeakRole, int]) -> list[tuple[str, int]]:
    """Categories and their bytes, the most first."""
    return sorted(
        ((category(role), size) for role, size in at_peak.items()), key=lambda pair: -pair[1]
    )


def share(part: float, whole: float) -> str:
    """Words a share in whole percent.

    >>> share(1, 3), share(1, 1000), share(0, 5)
    ('33%', '<1%', '0%')
    """
    if not whole or not part:
        return "0%"
    shown = round(100 * part / whole)
    return f"{shown}%" if shown else "<1%"


def _categories(trial: FakeTrial) -> Table:
    return category_table(by_category(trial.at_peak), trial.peak_bytes, "alive at the peak")


def category_table(sizes: Sequence[tuple[str, int]], whole: int, title: str) -> Table:
    """Bytes by what they are for, and their sum."""
    rows = [
        Row(cells=(clean(name), format_bytes(size), share(size, whole))) for name, size in sizes
    ]
    rows.append(Row(cells=("together", format_bytes(whole), "")))
    return Table(
        title="By category",
        columns=(
            Column(title="what for", left=True),
            Column(title=title),
            Column(title="share"),
        ),
        rows=tuple(rows),
    )


def source_table(
    sources: Sequence[PeakSource | HeldSource],
    whole: int,
    *,
    title: str,
    what: str,
    unnamed: str,
    note: str = "",
    others_bytes: int = 0,
) -> Table:
    """Bytes of each source, what they are for, and of all that is in none of them."""
    rows = [
        Row(
            cells=(
                format_bytes(source.num_bytes),
                share(source.num_bytes, whole),
                str(source.num_tensors),
                clean(source.name) or f"({unnamed})",
                ", ".join(
                    f"{category(role)} {format_bytes(size)}" for role, size in source.roles.items()
                )
                if len(source.roles) > 1
                else ", ".join(map(category, source.roles)),
            )
        )
        for source in sources
    ]
    if others_bytes > 0:
        cells = (format_bytes(others_bytes), share(others_bytes, whole), "", "(all others)", "")
        rows.append(Row(cells=cells))
    return Table(
        title=title,
        columns=(
            Column(title="memory"),
            Column(title="share"),
            Column(title="tensors"),
            Column(title=what, left=True),
            Column(title="what for", left=True),
        ),
        rows=tuple(rows),
        notes=(note,) if note else (),
    )


def _sources(
    trial: FakeTrial, sources: Sequence[PeakSource], *, what: str, unnamed: str, note: str
) -> Table:
    return source_table(
        sources,
        trial.peak_bytes,
        title=f"By {what}",
        what=what,
        unnamed=unnamed,
        note=note,
        others_bytes=trial.peak_bytes - sum(source.num_bytes for source in sources),
    )


def _chart(line: StepTimeline, batch_size: int, key: str) -> Chart:
    totals = [sum(values) for values in zip(*line.live.values(), strict=True)]
    unit, scale = memory_unit(max(totals, default=0))
    order: Callable[[str], int] = lambda role: (  # noqa: E731
        list(COLORS).index(role) if role in COLORS else len(COLORS)
    )
    series = [
        Series(
            key=role,
            label=category(role),
            kind="area",
            color=COLORS.get(role, 8),
            values=tuple(rounded(value / scale) for value in line.live[role]),
        )
        for role in sorted(line.live, key=order)
    ]
    group = -(-(line.num_events + 1) // len(line.positions))
    notes = [f"Over {plural(line.num_events, 'tensor')} that began or ceased to live in the step."]
    if group > 1:
        notes.append(f"Of each {group}, the one at which most lived.")
    return Chart(
        key=key,
        title=f"Allocated over a step of batch {batch_size} (estimate)",
        x_label="tensors that began or ceased to live",
        x_scale="linear",
        x=tuple(map(float, line.positions)),
        y_label=unit,
        unit=unit,
        series=tuple(series),
        marks=tuple(
            Mark(axis="x", value=float(at), label=clean(name), kind="phase")
            for name, at in line.phases
        ),
        notes=tuple(notes),
    )


def memory_unit(num_bytes: float) -> tuple[str, float]:
    """The unit in which a chart shows so much, and its bytes."""
    for unit, scale in (("GiB", GIB), ("MiB", MIB)):
        if num_bytes >= scale:
            return unit, float(scale)
    return "KiB", 1024.0
