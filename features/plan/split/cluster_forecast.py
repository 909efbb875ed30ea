"""The job on 1, 2, 4 ... GPUs, of one type and mixed, with the batch of a GPU kept and with the
global batch kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd
from typing import Literal

import msgspec

from ..records import RankPoint
from .cards import Card, recommended_of
from .cluster_options import all_types, device_types, num_gpus_of, rate_of
from .links import Job
from .type_allocation import slowest_s

FIRST_RANKS = (1, 2, 4, 8, 16, 32, 64)


def forecast_of(
    cards: Sequence[Card],
    mixed: Sequence[Card],
    job: Job,
    *,
    up_to: int,
    global_batch: int | None,
) -> tuple[RankPoint, ...]:
    """Points of every type by itself, then of the mix; none where no Tsync is known.

    Args:
        cards: types; their counts do not matter.
        mixed: types in the ratio of their counts; may be empty.
        up_to: the most GPUs.
        global_batch: that strong scaling keeps; the recommended size of a type where not given.
    """
    if job.sync_at(2)[0] is None:
        return ()
    points = []
    numbers = {*FIRST_RANKS, *_more(up_to)} & set(range(1, up_to + 1))
    if job.measured_ranks is not None and job.measured_ranks <= up_to:
        numbers.add(job.measured_ranks)
    for card in cards:
        keep = global_batch or _weak_batch([replace(card, count=1)], job)
        for num in sorted(numbers):
            of_type = [replace(card, count=num)]
            points += [_weak(of_type, job), _strong(of_type, keep, job)]
    for num in _multiples(mixed, up_to):
        mix = [replace(card, count=card.count * num // _unit(mixed)) for card in mixed]
        keep = global_batch or _weak_batch(mix, job)
        points += [_weak(mix, job), _strong(mix, keep, job)]
    return tuple(points)


def _weak_batch(cards: Sequence[Card], job: Job) -> int:
    return sum(card.count * recommended_of(card, job.least) for card in cards)


def _weak(cards: Sequence[Card], job: Job) -> RankPoint:
    """Every GPU keeps its recommended size; mixed ones the share that keeps them in step."""
    return _point("weak", cards, _weak_batch(cards, job), job)


def _strong(cards: Sequence[Card], total: int, job: Job) -> RankPoint:
    num_gpus = num_gpus_of(cards)
    if total < num_gpus * job.least:
        reason = f"{total} samples are fewer than {num_gpus} GPUs"
        reason += f" with {job.least} each" if job.least > 1 else ""
        return RankPoint(
            num_gpus=num_gpus, cards=_named(cards), scaling="strong", global_batch=total,
            unavailable={"step_s": reason},
        )  # fmt: skip
    return _point("strong", cards, total, job)


def _point(
    scaling: Literal["weak", "strong"], cards: Sequence[Card], total: int, job: Job
) -> RankPoint:
    num_gpus = num_gpus_of(cards)
    sizes = all_types(cards, total, job.least, job)
    compute_s = slowest_s(device_types(cards, total, job), sizes)
    sync_s, why = job.sync_at(num_gpus)
    point = RankPoint(
        num_gpus=num_gpus,
        cards=_named(cards),
        scaling=scaling,
        global_batch=total,
        batch_sizes=tuple(max(size for size, _ in pairs) for pairs in sizes),
        compute_s=compute_s,
    )
    if sync_s is None:
        return msgspec.structs.replace(point, unavailable={"step_s": why, "sync_s": why})
    step_s = compute_s + sync_s
    rate = total / step_s
    ranks = cards[0].record.distribution
    measured = (
        len(cards) == 1 and ranks is not None and num_gpus == ranks.world_size == job.measured_ranks
    )
    return msgspec.structs.replace(
        point,
        sync_s=sync_s,
        step_s=step_s,
        samples_per_s=rate,
        epoch_s=job.epoch_s(total, step_s),
        speedup=rate / max(card.rate for card in cards),
        efficiency=rate / rate_of(cards),
        confidence="measured" if measured and scaling == "weak" else "estimate",
    )


def _named(cards: Sequence[Card]) -> tuple[str, ...]:
    return tuple(f"{card.count} x {card.name}" for card in cards)


def _more(up_to: int) -> list[int]:
    """Beyond 64, doubled on and on."""
    numbers = [128]
    while numbers[-1] < up_to:
        numbers.append(2 * numbers[-1])
    return [*numbers, up_to]


def _unit(mixed: Sequence[Card]) -> int:
    """The largest number that divides all counts: the smallest mix has that part of them."""
    return gcd(*(card.count for card in mixed))


def _multiples(mixed: Sequence[Card], up_to: int) -> list[int]:
    """How many of the smallest mix: doubled, and the one that was counted."""
    if not mixed:
        return []
    smallest = sum(card.count for card in mixed) // _unit(mixed)
    numbers = {_unit(mixed)}
    num = 1
    while num * smallest <= up_to:
        numbers.add(num)
        num *= 2
    return sorted(num for num in numbers if num * smallest <= up_to)
