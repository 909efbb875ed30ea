"""The ranks of a job side by side: what each measured, and the epoch on more devices."""

from __future__ import annotations

from collections.abc import Callable

from ...records import Advice, RankTrial, RunRecord, Scaling, Trial
from ...units import GIB, format_bytes
from ..chart import BATCH, Chart, Mark, Series, rounded, short
from ..report import Column, Row, Table
from ..words.wording import beside_value, clean, measured, percent

MOST_POINTS = 64
"""Devices up to which the law is drawn."""


def rank_charts(record: RunRecord, advice: Advice) -> tuple[Chart, ...]:
    """Step time and memory of each rank over the sizes, and the law of the epoch."""
    by_size = _last_trials(record)
    marks: tuple[Mark, ...] = ()
    if advice.recommended is not None:
        size = advice.recommended.batch_size
        marks = (Mark(axis="x", value=size, label=f"use {size}", kind="recommended"),)
    charts: list[Chart | None] = [
        _by_rank(
            by_size,
            _step_ms,
            key="rank_step",
            title="Step time of each rank",
            unit="ms",
            marks=marks,
        ),
        _by_rank(
            by_size,
            _peak_gib,
            key="rank_peak",
            title="Peak memory of each rank",
            unit="GiB",
            marks=marks,
        ),
    ]
    if advice.scaling is not None:
        charts.append(_speedup(advice.scaling))
    return tuple(chart for chart in charts if chart is not None)


def rank_table(record: RunRecord, advice: Advice) -> Table | None:
    """One row a rank, at the recommended size where it ran."""
    job = record.distribution
    if job is None or len(job.ranks) < 2:
        return None
    by_size = _last_trials(record)
    size = advice.recommended.batch_size if advice.recommended is not None else None
    trial = by_size.get(size) if size is not None else None
    own = {part.rank: part for part in trial.ranks} if trial is not None else {}
    scaling = advice.scaling
    waits = scaling.waits_s if scaling is not None else ()
    rows = []
    for rank in job.ranks:
        own_trial = own.get(rank.rank)
        wait = waits[rank.rank] if rank.rank < len(waits) else None
        cells = (
            str(rank.rank),
            clean(rank.host),
            clean(f"{rank.device} {rank.device_name}"),
            format_bytes(rank.capacity_bytes),
            beside_value(*measured(own_trial.step_s, 1e3))
            if own_trial is not None and own_trial.step_s
            else "-",
            format_bytes(own_trial.peak_bytes)
            if own_trial is not None and own_trial.peak_bytes
            else "-",
            percent(100 * own_trial.peak_bytes / rank.capacity_bytes)
            if own_trial is not None and own_trial.peak_bytes and rank.capacity_bytes
            else "-",
            "-" if wait is None else short(wait * 1e3),
            own_trial.outcome.replace("_", " ") if own_trial is not None else "-",
        )
        slow = scaling is not None and scaling.straggler == rank.rank
        rows.append(Row(cells=cells, state="doubtful" if slow else "ok"))
    columns = (
        Column(title="rank"),
        Column(title="host", left=True),
        Column(title="device", left=True),
        Column(title="capacity"),
        Column(title="step", unit="ms"),
        Column(title="peak"),
        Column(title="used", unit="%"),
        Column(title="waits", unit="ms"),
        Column(title="outcome", left=True),
    )
    notes = (f"At batch size {size} a rank.",) if own else ()
    return Table(title="The ranks", columns=columns, rows=tuple(rows), notes=notes)


def _last_trials(record: RunRecord) -> dict[int, Trial]:
    """The last trial of each size in which the ranks were told apart."""
    return {
        trial.batch_size: trial
        for trial in record.trials
        if len(trial.ranks) > 1 and trial.says_of_size
    }


def _by_rank(
    by_size: dict[int, Trial],
    value: Callable[[RankTrial], float | None],
    *,
    key: str,
    title: str,
    unit: str,
    marks: tuple[Mark, ...],
) -> Chart | None:
    sizes = sorted(by_size)
    ranks = sorted({rank.rank for trial in by_size.values() for rank in trial.ranks})
    series = []
    for color, rank in enumerate(ranks):
        own = [
            next((trial for trial in by_size[size].ranks if trial.rank == rank), None)
            for size in sizes
        ]
        values = tuple(None if trial is None else rounded(value(trial)) for trial in own)
        if any(value is not None for value in values):
            series.append(
                Series(
                    key=f"rank_{rank}",
                    label=f"rank {rank}",
                    kind="measured",
                    color=color % 8 + 1,
                    values=values,
                    texts=tuple(
                        "" if value is None else f"{short(value)} {unit}" for value in values
                    ),
                )
            )
    if not series:
        return None
    return Chart(
        key=key,
        title=title,
        x_label=f"{BATCH} of a rank",
        x_scale="log",
        x=tuple(map(float, sizes)),
        x_ticks=tuple(map(float, sizes)),
        x_names=tuple(map(str, sizes)),
        y_label=unit,
        unit=unit,
        series=tuple(series),
        marks=marks,
    )


def _speedup(scaling: Scaling) -> Chart | None:
    points = [point for point in scaling.points if point.world_size <= MOST_POINTS]
    if len(points) < 2:
        return None
    x = tuple(float(point.world_size) for point in points)
    ran = [point if point.confidence == "measured" else None for point in points]
    return Chart(
        key="speedup",
        title="Speed-up on more devices, by the law",
        x_label="devices",
        x_scale="log",
        x=x,
        x_ticks=x,
        x_names=tuple(short(size) for size in x),
        y_label="times one device",
        unit="x",
        series=(
            Series(
                key="measured",
                label="from measured steps",
                kind="measured",
                color=1,
                values=tuple(
                    None if point is None else rounded(point.speedup.median) for point in ran
                ),
                low=tuple(None if point is None else rounded(point.speedup.low) for point in ran),
                high=tuple(None if point is None else rounded(point.speedup.high) for point in ran),
            ),
            Series(
                key="law",
                label="by the law",
                kind="estimate",
                color=2,
                values=tuple(rounded(point.speedup.median) for point in points),
            ),
            Series(key="ideal", label="without any cost", kind="estimate", color=8, values=x),
        ),
        notes=("Dashed lines are computed, not measured.",),
    )


def _step_ms(trial: RankTrial) -> float | None:
    return None if trial.step_s is None else trial.step_s.median * 1e3


def _peak_gib(trial: RankTrial) -> float | None:
    return None if trial.peak_bytes is None else trial.peak_bytes / GIB
