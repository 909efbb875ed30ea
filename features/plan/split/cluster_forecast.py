"""The job on 1, 2, 4 ... GPUs, of one type and mixed, with the batch of a GPU kept and with the
global batch kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, gcd

from ..records import Link, RankPoint
from .cards import Card, recommended_of
from .cluster_options import all_types, device_types, rate_of
from .links import sync_at
from .type_allocation import Sizes, slowest_s

FIRST_RANKS = (1, 2, 4, 8, 16, 32, 64)


def forecast_of(
    cards: Sequence[Card],
    mixed: Sequence[Card],
    *,
    link: Link | None,
    num_samples: int | None,
    up_to: int,
    global_batch: int | None,
    least: int = 1,
) -> tuple[RankPoint, ...]:
    """Points of every type by itself, then of the mix; none where no Tsync is known.

    Args:
        cards: types; their counts do not matter.
        mixed: types in the ratio of their counts; may be empty.
        up_to: the most GPUs.
        global_batch: that strong scaling keeps; the recommended size of a type where not given.
        least: what every size is a multiple of.
    """
    if link is None or sync_at(link, 2)[0] is None:
        return ()
    world = _World(link, num_samples, least)
    points = []
    numbers = sorted(
        {*FIRST_RANKS, *_more(up_to)} & set(range(1, up_to + 1)) | _measured(link, up_to)
    )
    for card in cards:
        keep = global_batch or world.weak_batch([replace(card, count=1)])
        for num in numbers:
            of_type = [replace(card, count=num)]
            points.append(world.weak(of_type))
            points.append(world.strong(of_type, keep))
    for num in _multiples(mixed, up_to):
        mix = [replace(card, count=card.count * num // _unit(mixed)) for card in mixed]
        points.append(world.weak(mix))
        points.append(world.strong(mix, global_batch or world.weak_batch(mix)))
    return tuple(points)


class _World:
    """The link, the samples and the least size that all points of a forecast share."""

    def __init__(self, link: Link, num_samples: int | None, least: int) -> None:
        self._link = link
        self._num_samples = num_samples
        self._least = least

    def weak_batch(self, cards: Sequence[Card]) -> int:
        return sum(card.count * recommended_of(card, self._least) for card in cards)

    def weak(self, cards: Sequence[Card]) -> RankPoint:
        """Every GPU keeps its recommended size; mixed ones the share that keeps them in step."""
        total = self.weak_batch(cards)
        if len(cards) == 1:
            sizes: tuple[Sizes, ...] = (((total // cards[0].count, cards[0].count),),)
        else:
            sizes = all_types(cards, total, self._least, self._link.busy_factor)
        return self._point("weak", cards, total, sizes)

    def strong(self, cards: Sequence[Card], total: int) -> RankPoint:
        num_gpus = sum(card.count for card in cards)
        if total < num_gpus * self._least:
            reason = f"{total} samples are fewer than {num_gpus} GPUs"
            reason += f" with {self._least} each" if self._least > 1 else ""
            return RankPoint(
                num_gpus=num_gpus, cards=_named(cards), scaling="strong", global_batch=total,
                unavailable={"step_s": reason},
            )  # fmt: skip
        sizes = all_types(cards, total, self._least, self._factor(cards))
        return self._point("strong", cards, total, sizes)

    def _factor(self, cards: Sequence[Card]) -> float:
        return self._link.busy_factor if sum(card.count for card in cards) > 1 else 1.0

    def _point(
        self, scaling: str, cards: Sequence[Card], total: int, sizes: Sequence[Sizes]
    ) -> RankPoint:
        num_gpus = sum(card.count for card in cards)
        compute_s = slowest_s(device_types(cards, total, self._factor(cards)), sizes)
        sync_s, why = sync_at(self._link, num_gpus)
        largest = tuple(max(size for size, _ in pairs) for pairs in sizes)
        same = {
            "num_gpus": num_gpus,
            "cards": _named(cards),
            "scaling": scaling,
            "global_batch": total,
            "batch_sizes": largest,
            "compute_s": compute_s,
        }
        if sync_s is None:
            return RankPoint(**same, unavailable={"step_s": why, "sync_s": why})  # type: ignore[arg-type]
        step_s = compute_s + sync_s
        rate = total / step_s
        epoch_s = None
        if self._num_samples is not None and total <= self._num_samples:
            epoch_s = ceil(self._num_samples / total) * step_s
        alone = max(card.rate for card in cards)
        job = cards[0].record.distribution
        measured = (
            len(cards) == 1
            and job is not None
            and num_gpus == job.world_size == self._link.measured_ranks
        )
        return RankPoint(
            **same,  # type: ignore[arg-type]
            sync_s=sync_s,
            step_s=step_s,
            samples_per_s=rate,
            epoch_s=epoch_s,
            speedup=rate / alone,
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


def _measured(link: Link, up_to: int) -> set[int]:
    ranks = link.measured_ranks
    return {ranks} if ranks is not None and ranks <= up_to else set()


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
