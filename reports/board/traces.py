"""Traces without a record of ours: what `analyze` found, as tables and charts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from ...records import Analysis, Collectives, KernelTime, Record, StepTimes, TraceReport
from ...units import format_seconds
from ..analysis import trace_names
from ..breakdown import device_breakdown
from ..chart import Chart, Series, rounded, short
from ..limit import limit_text
from ..report import Column, LimitText, Row, Table
from ..wording import clean, percent, plural
from .summary import Measured, summary

MAX_STEPS = 50
"""Steps of one trace that are listed."""


class TracePage(Record, frozen=True, kw_only=True):
    """What is shown of a folder of traces.

    Attributes:
        limits: what limits the steps, with whose steps they are.
        tables: in the order in which they are shown.
    """

    headline: str
    limits: tuple[tuple[str, LimitText], ...]
    notes: tuple[str, ...]
    charts: tuple[Chart, ...]
    tables: tuple[Table, ...]


def trace_page(analysis: Analysis) -> TracePage:
    """The page of an analysis."""
    names = [clean(one) for one in trace_names(analysis.traces)]
    named = list(zip(names, analysis.traces, strict=True))
    limits = [(name, limit_text(one.verdict)) for name, one in named]
    if analysis.verdict is not None:
        ranks = len({one.rank for one in analysis.traces})
        limits = [(f"{plural(ranks, 'rank')} of one job", limit_text(analysis.verdict))]
    measured = [Measured(name=name, profile=one.profile) for name, one in named]
    on_gpu = any(one.device is not None for one in analysis.traces)
    tables = [
        _windows(named),
        summary(measured, "GPU summary" if on_gpu else "CPU summary"),
        _collectives(analysis.collectives),
        *(_hot(name, one) for name, one in named),
        *(_steps(name, one.steps) for name, one in named),
    ]
    chart = _chart(named)
    first = limits[0][1]
    return TracePage(
        headline=f"{first.limit}: {first.message}",
        limits=tuple(limits),
        notes=_notes(analysis, named),
        charts=(chart,) if chart is not None else (),
        tables=tuple(one for one in tables if one is not None),
    )


def trace_line(analysis: Analysis) -> str:
    """The page in one line."""
    verdict = analysis.verdict or analysis.traces[0].verdict
    return clean(f"{verdict.limit}: {verdict.message}")


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
    for name, one in named:
        rank = "-" if one.rank is None else str(one.rank)
        if one.rank is not None and one.world_size is not None:
            rank += f" of {one.world_size}"
        device = "CPU" if one.device is None else clean(one.device_name or f"GPU {one.device}")
        step = "-" if one.step_s is None else format_seconds(one.step_s)
        steps = str(len(one.steps)) if one.steps else "-"
        limit = one.verdict.limit
        cells = (name, rank, device, step, steps, format_seconds(one.window_s), limit)
        rows.append(Row(cells=cells))
    source = next((one.step_source for _, one in named if one.step_source), "")
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


def _collectives(found: Collectives | None) -> Table | None:
    if found is None:
        return None
    notes = [f"{plural(found.num_matched, 'collective')} that all ranks have."]
    if found.straggler is not None and found.straggler_share is not None:
        notes.append(
            f"Rank {found.straggler} causes {found.straggler_share:.0%} of the waiting: it comes "
            "last, and the others wait for it."
        )
    if found.world_size is not None and found.world_size > len(found.ranks):
        notes.append(
            f"{len(found.ranks)} of {found.world_size} ranks are here: the transfer is an upper "
            "bound."
        )
    return Table(
        title="Collectives, rank against rank",
        columns=tuple(
            Column(title=one)
            for one in ("rank", "communication", "transfer", "waiting", "others waited", "last in")
        ),
        rows=tuple(
            Row(
                cells=(
                    str(one.rank),
                    format_seconds(one.communication_s),
                    format_seconds(one.transfer_s),
                    format_seconds(one.wait_s),
                    format_seconds(one.caused_s),
                    str(one.num_last),
                )
            )
            for one in found.ranks
        ),
        notes=tuple(notes),
    )


def _hot(name: str, report: TraceReport) -> Table | None:
    """The most expensive kernels, operators where no GPU worked."""
    profile = report.profile
    rows: list[tuple[str, ...]]
    columns: tuple[str, ...]
    if profile.kernels:
        rows = [_kernel(one, report) for one in profile.kernels]
        columns = ("kernel", "calls", "time", "of the window", "occupancy")
        title = "Kernels"
    elif profile.operators:
        rows = [
            (clean(one.name), str(one.num_calls), format_seconds(one.self_s))
            for one in profile.operators
        ]
        columns = ("operator", "calls", "self time")
        title = "CPU operators"
    else:
        return None
    return Table(
        title=f"{title} of {name}",
        columns=tuple(Column(title=one, left=one in ("kernel", "operator")) for one in columns),
        rows=tuple(Row(cells=one) for one in rows),
    )


def _kernel(kernel: KernelTime, report: TraceReport) -> tuple[str, ...]:
    share = 100 * kernel.total_s / report.window_s if report.window_s > 0 else None
    return (
        clean(kernel.name),
        str(kernel.num_calls),
        format_seconds(kernel.total_s),
        "-" if share is None else f"{percent(share)}%",
        "-" if kernel.occupancy_pct is None else f"{percent(kernel.occupancy_pct)}%",
    )


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
        if any(getattr(one, field) is not None for one in steps)
    }
    rows = []
    for one in steps[:MAX_STEPS]:
        values = [getattr(one, field) for field in shown.values()]
        cells = ["-" if value is None else f"{percent(value)}%" for value in values]
        label = clean(one.name.removeprefix("ProfilerStep#"))
        times = (format_seconds(one.window_s), format_seconds(one.host_s))
        rows.append(Row(cells=(label, *times, *cells)))
    more = len(steps) - len(rows)
    return Table(
        title=f"Steps of {name}",
        columns=tuple(Column(title=one) for one in ("step", "window", "host's range", *shown)),
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
    labels = list(dict.fromkeys(label for _, _, parts in known for label in parts))
    positions = tuple(float(one) for one in range(len(known)))
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
                texts=tuple(f"{short(parts.get(label, 0.0))}%" for _, _, parts in known),
            )
            for number, label in enumerate(labels, start=1)
        ),
    )
