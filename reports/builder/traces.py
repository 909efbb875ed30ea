"""Traces without a record of ours: what `analyze` found, as tables and charts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import PurePath

from ...records import Analysis, StepTimes, TraceReport
from ...units import format_seconds
from ..chart import Chart, Series, rounded
from ..report import Column, LongTable, Row, Table
from ..tab import TracePage
from ..words.traces import trace_names
from ..words.wording import clean, percent, plural
from .analysis import collectives_table
from .charts.breakdown import SMALLEST_PART, device_breakdown
from .growth import Side, tables
from .hot import hot_tables, window_of_trace
from .sections.limit import limit_text
from .sections.profiled_memory import memory_charts, memory_table, shown_curves
from .summary import Measured, summary

MAX_STEPS = 50
"""Steps of one trace that are listed."""
MAX_LISTED = 8
"""Traces whose kernels, operators and steps are listed."""
MAX_COMPARED = 12
"""Traces of one folder that are put side by side."""
_SIZE = re.compile(r"batch_size=(\d+)")


def trace_page(analysis: Analysis) -> TracePage:
    """The page of an analysis."""
    names = [clean(name) for name in trace_names(analysis.traces)]
    named = list(zip(names, analysis.traces, strict=True))
    limits = [(name, limit_text(trace.verdict)) for name, trace in named]
    if analysis.verdict is not None:
        ranks = len({trace.rank for trace in analysis.traces})
        limits = [(f"{plural(ranks, 'rank')} of one job", limit_text(analysis.verdict))]
    measured = [Measured(name=name, profile=trace.profile) for name, trace in named]
    on_gpu = any(trace.device is not None for trace in analysis.traces)
    listed, left = _listed(analysis, named)
    shown = [
        _windows(named),
        summary(measured, "GPU summary" if on_gpu else "CPU summary"),
        _memory(listed),
        None if analysis.collectives is None else collectives_table(analysis.collectives),
        *(table for name, trace in listed for table in _hot(name, trace)),
        *(_steps(name, trace.steps) for name, trace in listed),
    ]
    several = len(named) > 1
    memory = [
        chart
        for number, (name, trace) in enumerate(listed)
        for chart in memory_charts(
            trace.profile.memory, f"memory_{number}", name if several else ""
        )
    ]
    chart = _chart(named)
    grown = _grown(analysis, named)
    first = limits[0][1]
    return TracePage(
        headline=f"{first.limit}: {first.message}",
        limits=tuple(limits),
        notes=(*_notes(analysis, named), *left),
        charts=(*((chart,) if chart is not None else ()), *memory),
        tables=tuple(table for table in shown if table is not None),
        flames=tuple((name, trace.flames) for name, trace in listed if trace.flames),
        grown=grown,
    )


def _memory(named: Sequence[tuple[str, TraceReport]]) -> Table | None:
    """The figures of memory over a step, where allocations were recorded."""
    curves = [
        (name, curve) for name, trace in named for curve in shown_curves(trace.profile.memory)
    ]
    return memory_table(curves) if curves else None


def _listed(
    analysis: Analysis, named: Sequence[tuple[str, TraceReport]]
) -> tuple[Sequence[tuple[str, TraceReport]], tuple[str, ...]]:
    """The traces whose kernels and steps are listed, and what is said of the others.

    Of many ranks it is the first ones, and the one that the others wait for.
    """
    if len(named) <= MAX_LISTED:
        return named, ()
    late = None if analysis.collectives is None else analysis.collectives.straggler
    slow = [pair for pair in named[MAX_LISTED:] if late is not None and pair[1].rank == late]
    listed = [*named[: MAX_LISTED - len(slow)], *slow]
    names = ", ".join(name for name, _ in listed)
    return listed, (
        clean(
            f"Kernels, operators and steps are those of {names}; those of "
            f"{plural(len(named) - len(listed), 'other trace')} are left out: "
            "analyze them by themselves."
        ),
    )


def _notes(analysis: Analysis, named: Sequence[tuple[str, TraceReport]]) -> tuple[str, ...]:
    notes: dict[str, list[str]] = {}
    for name, report in named:
        for note in report.notes:
            notes.setdefault(note, []).append(name)
    texts = [
        f"{note}." if len(whose) == len(named) else f"{', '.join(whose)}: {note}."
        for note, whose in notes.items()
    ]
    if analysis.verdict is None and len(named) > 1 and "collectives" in analysis.unavailable:
        texts.append(f"Not compared rank by rank: {analysis.unavailable['collectives']}.")
    texts += [f"{PurePath(path).name} is left out: {why}" for path, why in analysis.skipped.items()]
    return tuple(map(clean, texts))


def _windows(named: Sequence[tuple[str, TraceReport]]) -> Table:
    rows = []
    for name, trace in named:
        rank = "-" if trace.rank is None else str(trace.rank)
        if trace.rank is not None and trace.world_size is not None:
            rank += f" of {trace.world_size}"
        device = (
            "CPU" if trace.device is None else clean(trace.device_name or f"GPU {trace.device}")
        )
        step = "-" if trace.step_s is None else format_seconds(trace.step_s)
        steps = str(len(trace.steps)) if trace.steps else "-"
        limit = trace.verdict.limit
        cells = (name, rank, device, step, steps, format_seconds(trace.window_s), limit)
        rows.append(Row(cells=cells))
    source = next((trace.step_source for _, trace in named if trace.step_source), "")
    return Table(
        title="Traces",
        columns=(
            Column(title="trace", left=True), Column(title="rank"),
            Column(title="device", left=True), Column(title="step time"), Column(title="steps"),
            Column(title="window"), Column(title="limit", left=True),
        ),
        rows=tuple(rows),
        notes=(f"step time: from {source}.",) if source else (),
    )  # fmt: skip


def _hot(name: str, report: TraceReport) -> tuple[Table, ...]:
    """The most expensive kernels and operators."""
    return hot_tables(report.profile, window_of_trace(report), f" of {name}")


def _grown(analysis: Analysis, named: Sequence[tuple[str, TraceReport]]) -> tuple[LongTable, ...]:
    """What changed from each trace to the next, by their batch sizes where all folders name them.

    Ranks of one job are no change of anything, nor are the GPUs of one trace.
    """
    traces = {report.trace for _, report in named}
    if analysis.verdict is not None or not 2 <= len(traces) == len(named) <= MAX_COMPARED:
        return ()
    sides = [
        Side(name, _batch_size(report.trace), report.profile, window_of_trace(report))
        for name, report in named
        if report.profile.num_steps
    ]
    sizes = {side.batch_size for side in sides} - {None}
    if len(sizes) == len(sides):
        sides.sort(key=lambda side: side.batch_size or 0)
    elif len(sides) > 2:
        return ()
    return tuple(table for pair in itertools.pairwise(sides) for table in tables(*pair))


def _batch_size(trace: str) -> int | None:
    """As the folders of a run's traces say it."""
    found = _SIZE.search(trace)
    return int(found[1]) if found is not None else None


def _steps(name: str, steps: Sequence[StepTimes]) -> Table | None:
    if not steps:
        return None
    shares = {
        "busy": "busy_pct",
        "computing": "compute_pct",
        "exposed communication": "exposed_communication_pct",
        "exposed copies": "exposed_copy_pct",
        "DataLoader": "input_pct",
        "host": "host_pct",
    }
    shown = {
        title: field
        for title, field in shares.items()
        if any(getattr(step, field) is not None for step in steps)
    }
    rows = []
    for step in steps[:MAX_STEPS]:
        values = [getattr(step, field) for field in shown.values()]
        cells = ["-" if value is None else f"{percent(value)}%" for value in values]
        label = clean(step.name.removeprefix("ProfilerStep#"))
        times = (format_seconds(step.window_s), format_seconds(step.host_s))
        rows.append(Row(cells=(label, *times, *cells)))
    more = len(steps) - len(rows)
    return Table(
        title=f"Steps of {name}",
        columns=tuple(Column(title=title) for title in ("step", "window", "host's range", *shown)),
        rows=tuple(rows),
        notes=(f"and {plural(more, 'further step')}.",) if more else (),
    )


def _chart(named: Sequence[tuple[str, TraceReport]]) -> Chart | None:
    """Where the time of a step went, one bar a trace."""
    known = [
        (name, report, parts)
        for name, report in named
        if (parts := device_breakdown(report.profile)) is not None
    ]
    if not known:
        return None
    labels = [
        label
        for label in dict.fromkeys(label for _, _, parts in known for label in parts)
        if any(parts.get(label, 0.0) >= SMALLEST_PART for _, _, parts in known)
    ]
    positions = tuple(float(number) for number in range(len(known)))
    return Chart(
        key="window",
        title="What the window was spent on",
        x_label="trace",
        x_scale="category",
        x=positions,
        x_ticks=positions,
        x_names=tuple(name for name, _, _ in known),
        y_label="% of the window",
        unit="%",
        series=tuple(
            Series(
                key=label,
                label=label,
                kind="part",
                color=number,
                values=tuple(rounded(parts.get(label, 0.0)) for _, _, parts in known),
                texts=tuple(f"{percent(parts.get(label, 0.0))}%" for _, _, parts in known),
            )
            for number, label in enumerate(labels, start=1)
        ),
    )
