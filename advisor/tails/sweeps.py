"""Which cases each size meets, without words, and the sizes near by that meet none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from ...errors import UsageError
from ...records import CleanSize, Pipeline, SweepRow
from ...units import format_count
from .case import TailCase
from .cases import cases_for
from .conditions import HARM
from .layouts import layout_of
from .pipeline import check, refuse

NEAR_SHARE = 0.25
"""Clean sizes are looked for within this relative distance."""
MOST_NEAR = 4000
"""Sizes on each side that are looked at, however large a size is."""
MAX_CLEAN = 3
WHATEVER_THE_SIZE = frozenset(("ddp.no-sampler", "lightning.sampler"))
"""Cases that no batch size avoids; they are no reason to take another one."""


def row_of(pipeline: Pipeline) -> SweepRow:
    """The cases that a pipeline meets at its own size; no steps where it trains nothing."""
    return _row(pipeline, cases_for(pipeline), pipeline.batch_size)


def sweep(pipeline: Pipeline, sizes: Iterable[int]) -> tuple[SweepRow, ...]:
    """The cases that each size would meet, without words; for thousands of sizes.

    Raises:
        UsageError: the description contradicts itself.
    """
    check(pipeline)
    if pipeline.rank_batch_sizes:
        msg = "Sizes by rank are given, and a sweep tries one size for all."
        raise UsageError(msg, "Leave the sizes by rank out, or plan one pipeline after the other.")
    cases = cases_for(pipeline)
    return tuple(_row(pipeline, cases, size) for size in sizes)


def _row(pipeline: Pipeline, cases: tuple[TailCase, ...], size: int) -> SweepRow:
    layout = layout_of(pipeline, size)
    if isinstance(layout, str):
        name = refuse(msgspec.structs.replace(pipeline, batch_size=size))
        return SweepRow(
            batch_size=size,
            steps=0,
            last=(),
            dropped=0,
            duplicates=0,
            weight=1.0,
            ids=(name,) if name else (),
        )
    harm: list[str] = []
    also: list[str] = []
    for case in cases:
        degree = case.fires(pipeline, layout)
        if degree:
            (harm if degree == HARM else also).append(case.id)
    return SweepRow(
        batch_size=size,
        steps=layout.steps,
        last=layout.last if layout.is_short else (),
        dropped=layout.dropped,
        duplicates=layout.duplicates,
        weight=layout.weight,
        ids=tuple(harm),
        also=tuple(also),
    )


def is_clean(row: SweepRow) -> bool:
    """Whether a size makes steps and meets no case that does harm."""
    return row.steps > 0 and WHATEVER_THE_SIZE.issuperset(row.ids)


def nearest_clean(
    pipeline: Pipeline,
    *,
    largest: int | None = None,
    predict: Callable[[int], float] | None = None,
    near: float = NEAR_SHARE,
    most: int = MAX_CLEAN,
) -> tuple[CleanSize, ...]:
    """Sizes near the pipeline's without a harmful tail, the best first; none if it has none itself.

    Without a law those come first that leave nothing over, then multiples of 8, then the nearest.
    With one, the highest predicted throughput comes first, in steps of a hundredth of the best: no
    law tells finer. The nearest of all is always among them.

    Args:
        largest: the memory cap.
        predict: samples per second of a size.
        near: relative distance.
        most: how many to return.
    """
    if pipeline.rank_batch_sizes:
        return ()  # sizes by rank are planned together, not one by one
    size = pipeline.batch_size
    (own,) = sweep(pipeline, [size])
    if is_clean(own):
        return ()
    low, high = near_by(pipeline, largest=largest, near=near)
    rows = [
        row
        for row in sweep(pipeline, (other for other in range(low, high + 1) if other != size))
        if is_clean(row)
    ]
    if not rows:
        return ()
    best = max(predict(row.batch_size) for row in rows) if predict else 1.0

    def distance(row: SweepRow) -> tuple[int, int]:
        return abs(row.batch_size - size), row.batch_size

    def order(row: SweepRow) -> tuple[float, ...]:
        left = bool(row.last or row.dropped or row.duplicates)
        plain = (left, row.batch_size % 8 != 0, *distance(row))
        return plain if predict is None else (-round(predict(row.batch_size) / best, 2), *plain)

    chosen, nearest = sorted(rows, key=order)[:most], min(rows, key=distance)
    if nearest not in chosen:
        chosen[-1] = nearest
    return tuple(
        CleanSize(
            batch_size=row.batch_size,
            last_samples=sum(row.last),
            weight=row.weight,
            predicted_samples_per_s=None if predict is None else predict(row.batch_size),
        )
        for row in chosen
    )


def why_none_clean(pipeline: Pipeline, *, largest: int | None = None) -> str:
    """What to say where `nearest_clean` names no size; empty where none was looked for."""
    if pipeline.rank_batch_sizes or is_clean(row_of(pipeline)):
        return ""
    low, high = near_by(pipeline, largest=largest)
    if low >= high:
        return "no other size near by is without a harmful tail"
    sizes = f"no size from {format_count(low)} to {format_count(high)}"
    return f"{sizes} is without a harmful tail"


def near_by(
    pipeline: Pipeline, *, largest: int | None = None, near: float = NEAR_SHARE
) -> tuple[int, int]:
    """The least and the largest size in which clean ones are looked for."""
    size = pipeline.batch_size
    high = min(round(size * (1 + near)), size + MOST_NEAR)
    for cap in (pipeline.num_samples, largest):
        high = high if cap is None else min(high, cap)
    return max(1, round(size * (1 - near)), size - MOST_NEAR), high


def outwards(pipeline: Pipeline, *, step: int = 1, most: int = 500) -> Iterator[SweepRow]:
    """Sizes that are multiples of `step`, the nearest first, up to four times as large."""
    size = pipeline.batch_size
    top = 4 * max(size, pipeline.num_ranks)
    if pipeline.num_samples is not None:
        top = min(top, pipeline.num_samples)
    below, above = (size - 1) // step * step, (size // step + 1) * step
    cases = cases_for(pipeline)
    for _ in range(most):
        if below < step and above > top:
            return
        down = below >= step and (above > top or size - below <= above - size)
        yield _row(pipeline, cases, below if down else above)
        if down:
            below -= step
        else:
            above += step


def downwards(pipeline: Pipeline, top: int, *, most: int = 100) -> Iterator[SweepRow]:
    """Sizes that make steps, the largest first: those without harm, then the others."""
    cases = cases_for(pipeline)
    sizes = range(top, max(0, top - most), -1)
    yield from clean_first(_row(pipeline, cases, size) for size in sizes)


def clean_first(rows: Iterable[SweepRow]) -> Iterator[SweepRow]:
    """Rows without harm as they come, then the others that make steps."""
    others = []
    for row in rows:
        if is_clean(row):
            yield row
        elif row.steps:
            others.append(row)
    yield from others
