"""The engine: a pipeline in, what its epochs end in out. Pure arithmetic; nothing runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from ...errors import UsageError
from ...records import CleanSize, Layout, Pipeline, SweepRow, TailFinding, TailReport
from .cases import BY_ID
from .fixes import fixes
from .layouts import layout_of
from .pipeline import check, refuse
from .rules import HARM, Rule, rules_for
from .words import refusal, said

NEAR = 0.25
"""Clean sizes are looked for within this relative distance."""
MAX_CLEAN = 3
WHATEVER_THE_SIZE = frozenset(("ddp.no-sampler", "lightning.sampler"))
"""Cases that no batch size avoids; they are no reason to take another one."""
_ORDER = {"error": 0, "nan": 1, "bias": 2, "waste": 3, "slow": 4}


def report_of(pipeline: Pipeline) -> TailReport:
    """What the end of an epoch does, with findings, the worst first, and clean sizes near by.

    Raises:
        UsageError: the description contradicts itself.
    """
    check(pipeline)
    refused = refuse(pipeline)
    if refused:
        message, evidence = refusal(refused, pipeline)
        case = BY_ID[refused]
        finding = TailFinding(
            id=refused,
            severity=case.severity,
            harmful=True,
            message=message,
            evidence=evidence,
            fixes=fixes(pipeline, *case.fixes),
        )
        return TailReport(
            pipeline=pipeline,
            layout=None,
            findings=(finding,),
            unavailable={"layout": "this setup does not train"},
        )
    layout = layout_of(pipeline)
    if isinstance(layout, str):
        return TailReport(pipeline=pipeline, layout=None, unavailable={"layout": layout})
    short = layout.is_short or layout.dropped or layout.duplicates
    return TailReport(
        pipeline=pipeline,
        layout=layout,
        findings=findings(pipeline, layout),
        nearest_clean=nearest_clean(pipeline) if short else (),
    )


def findings(pipeline: Pipeline, layout: Layout) -> tuple[TailFinding, ...]:
    """The cases that a layout meets: harmful ones first, then by severity."""
    found = []
    for rule in rules_for(pipeline):
        degree = rule.fires(pipeline, layout)
        if not degree:
            continue
        message, evidence = said(rule.id, pipeline, layout)
        case = BY_ID[rule.id]
        found.append(
            TailFinding(
                id=rule.id,
                severity=case.severity,
                harmful=degree == HARM,
                message=message,
                evidence=evidence,
                fixes=fixes(pipeline, *case.fixes),
            )
        )
    return tuple(sorted(found, key=lambda one: (not one.harmful, _ORDER[one.severity])))


def sweep(pipeline: Pipeline, sizes: Iterable[int]) -> tuple[SweepRow, ...]:
    """What each size would meet, without words; for thousands of sizes.

    Raises:
        UsageError: the description contradicts itself.
    """
    check(pipeline)
    if pipeline.rank_batch_sizes:
        msg = "Sizes by rank are given, and a sweep tries one size for all."
        raise UsageError(msg, "Leave the sizes by rank out, or plan one pipeline after the other.")
    rules = rules_for(pipeline)
    return tuple(_row(pipeline, rules, size) for size in sizes)


def _row(pipeline: Pipeline, rules: tuple[Rule, ...], size: int) -> SweepRow:
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
    for rule in rules:
        degree = rule.fires(pipeline, layout)
        if degree:
            (harm if degree == HARM else also).append(rule.id)
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
    near: float = NEAR,
    most: int = MAX_CLEAN,
) -> tuple[CleanSize, ...]:
    """Sizes near the pipeline's without a harmful tail, the best first.

    Where samples are dropped, only sizes that drop fewer are named. Without a law those come
    first that leave nothing over, then multiples of 8, then the nearest. With one, the highest
    predicted throughput comes first, in steps of a hundredth of the best: no law tells finer.

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
    low = max(1, round(size * (1 - near)))
    high = round(size * (1 + near))
    if pipeline.num_samples is not None:
        high = min(high, pipeline.num_samples)
    if largest is not None:
        high = min(high, largest)
    rows = [
        row
        for row in sweep(pipeline, (one for one in range(low, high + 1) if one != size))
        if is_clean(row) and not (own.dropped and row.dropped >= own.dropped)
    ]

    best = max((predict(row.batch_size) for row in rows), default=1.0) if predict else 1.0

    def order(row: SweepRow) -> tuple[float, ...]:
        left = bool(row.last or row.dropped or row.duplicates)
        distance = abs(row.batch_size - size)
        plain = (left, row.batch_size % 8 != 0, distance, row.batch_size)
        return plain if predict is None else (-round(predict(row.batch_size) / best, 2), *plain)

    return tuple(
        CleanSize(
            batch_size=row.batch_size,
            last_samples=sum(row.last),
            weight=row.weight,
            predicted_samples_per_s=None if predict is None else predict(row.batch_size),
        )
        for row in sorted(rows, key=order)[:most]
    )
