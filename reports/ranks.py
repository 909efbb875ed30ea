"""The ranks of a job side by side: what each measured, and the epoch on more devices."""

from __future__ import annotations

from collections.abc import Callable

from ..records import Advice, RankTrial, RunRecord, Scaling, Trial
from ..units import GIB, format_bytes
from .chart import BATCH, Chart, Mark, Series, rounded, short
from .report import Column, Row, Table
from .wording import clean, measured, percent

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
    return tuple(one for one in charts if one is not None)


def rank_table(record: RunRecord, advice: Advice) -> Table | None:
    """One row a rank, at the recommended size where it ran."""
    found = record.distribution
    if found is None or len(found.ranks) < 2:
        return None
    by_size = _last_trials(record)
    size = advice.recommended.batch_size if advice.recommended is not None else None
    trial = by_size.get(size) if size is not None else None
    own = {one.rank: one for one in trial.ranks} if trial is not None else {}
    scaling = advice.scaling
    waits = scaling.waits_s if scaling is not None else ()
    rows = []
    for rank in found.ranks:
        one = own.get(rank.rank)
        wait = waits[rank.rank] if rank.rank < len(waits) else None
        cells = (
            str(rank.rank),
            clean(rank.host),
            clean(f"{rank.device} {rank.device_name}"),
            format_bytes(rank.capacity_bytes),
            " ".join(measured(one.step_s, 1e3)) if one is not None and one.step_s else "-",
            format_bytes(one.peak_bytes) if one is not None and one.peak_bytes else "-",
            percent(100 * one.peak_bytes / rank.capacity_bytes)
            if one is not None and one.peak_bytes and rank.capacity_bytes
            else "-",
            "-" if wait is None else short(wait * 1e3),
            one.outcome.replace("_", " ") if one is not None else "-",
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
        one.batch_size: one for one in record.trials if len(one.ranks) > 1 and one.purpose != "tail"
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
    ranks = sorted({one.rank for trial in by_size.values() for one in trial.ranks})
    series = []
    for color, rank in enumerate(ranks):
        own = [
            next((one for one in by_size[size].ranks if one.rank == rank), None) for size in sizes
        ]
        values = tuple(None if one is None else rounded(value(one)) for one in own)
        if any(one is not None for one in values):
            series.append(
                Series(
                    key=f"rank_{rank}",
                    label=f"rank {rank}",
                    kind="measured",
                    color=color % 8 + 1,
                    values=values,
                    texts=tuple("" if one is None else f"{short(one)} {unit}" for one in values),
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
    points = [one for one in scaling.points if one.world_size <= MOST_POINTS]
    if len(points) < 2:
        return None
    x = tuple(float(one.world_size) for one in points)
    ran = [one if one.confidence == "measured" else None for one in points]
    return Chart(
        key="speedup",
        title="Speed-up on more devices, by the law",
        x_label="devices",
        x_scale="log",
        x=x,
        x_ticks=x,
        x_names=tuple(short(one) for one in x),
        y_label="times one device",
        unit="x",
        series=(
            Series(
                key="measured",
                label="from measured steps",
                kind="measured",
                color=1,
                values=tuple(None if one is None else rounded(one.speedup.median) for one in ran),
                low=tuple(None if one is None else rounded(one.speedup.low) for one in ran),
                high=tuple(None if one is None else rounded(one.speedup.high) for one in ran),
            ),
            Series(
                key="law",
                label="by the law",
                kind="estimate",
                color=2,
                values=tuple(rounded(one.speedup.median) for one in points),
            ),
            Series(key="ideal", label="without any cost", kind="estimate", color=8, values=x),
        ),
        notes=("Dashed lines are computed, not measured.",),
    )


def _step_ms(one: RankTrial) -> float | None:
    return None if one.step_s is None else one.step_s.median * 1e3


def _peak_gib(one: RankTrial) -> float | None:
    return None if one.peak_bytes is None else one.peak_bytes / GIB
