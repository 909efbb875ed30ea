"""Ways to divide a step over many GPUs of a few types, each with what it is predicted to do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations

from ....advisor.split.allocation import proportional
from ..records import PlanKind, PlanOption, PlanShare
from .cards import Card
from .links import Job
from .type_allocation import DeviceType, Sizes, allocate_types, slowest_s, within

MOST_TYPES = 10
"""Types of GPU up to which every choice of them is looked at; of more, the quickest come first."""


def rate_of(cards: Sequence[Card]) -> float:
    """Samples per second of all GPUs together, each alone at its recommended size."""
    return sum(card.count * card.rate for card in cards)


def device_types(cards: Sequence[Card], total: int, job: Job) -> list[DeviceType]:
    """Describes the GPUs to the allocation; above its largest micro-batch a GPU accumulates."""
    factor = job.factor_on(num_gpus_of(cards))
    return [_device_type(card, total, factor) for card in cards]


def num_gpus_of(cards: Sequence[Card]) -> int:
    """How many GPUs of all types there are."""
    return sum(card.count for card in cards)


def _device_type(card: Card, total: int, factor: float) -> DeviceType:
    """Step times are asked for again and again: each is computed once."""
    step_s = card.steps.step_s
    return DeviceType(count=card.count, step_s=cache(lambda size: factor * step_s(size)), cap=total)


def best_types(
    cards: Sequence[Card], total: int, portion: int, job: Job
) -> tuple[tuple[Card, ...], tuple[Sizes, ...]] | None:
    """The types to use, and their sizes, whose step is shortest; all that are used take part.

    Up to ten types, every choice is looked at, and of more the quickest together. One that could
    not be quicker than the best so far is told from how much all of it gets done in that time.
    Where Tsync is not known it is left out.
    """
    best: tuple[tuple[Card, ...], tuple[Sizes, ...]] | None = None
    best_s = float("inf")
    factor = job.factor_on(num_gpus_of(cards))
    known = {card.name: _device_type(card, total, factor) for card in cards}
    for chosen in _choices(cards):
        num_gpus = num_gpus_of(chosen)
        if num_gpus * portion > total:
            continue
        sync_s = job.sync_at(num_gpus)[0] or 0.0
        types = [known[card.name] for card in chosen]
        if num_gpus == 1:
            types = device_types(chosen, total, job)
        room_s = best_s - sync_s
        if best is not None and not _quicker(types, total, portion, room_s):
            continue
        sizes = allocate_types(total, types, granularity=portion, smallest=portion)
        if sizes is None:
            continue
        step_s = slowest_s(types, sizes) + sync_s
        if step_s < best_s:
            best, best_s = (tuple(chosen), sizes), step_s
    return best


def all_types(cards: Sequence[Card], total: int, portion: int, job: Job) -> tuple[Sizes, ...]:
    """The exact split over all types, however slow some are.

    There is one: every GPU can have a portion, and accumulates above its largest micro-batch.
    """
    types = device_types(cards, total, job)
    sizes = allocate_types(total, types, granularity=portion, smallest=portion)
    assert sizes is not None
    return sizes


def _choices(cards: Sequence[Card]) -> list[tuple[Card, ...]]:
    """All types first, so that fewer are taken only where they are quicker."""
    quickest = sorted(cards, key=lambda card: card.steps.step_s(1))
    if len(cards) > MOST_TYPES:
        return [tuple(quickest[:num]) for num in range(len(cards), 0, -1)]
    return [
        chosen for num in range(len(cards), 0, -1) for chosen in combinations(tuple(cards), num)
    ]


def _quicker(types: Sequence[DeviceType], total: int, portion: int, level_s: float) -> bool:
    """Whether all samples are done before that time, with something for everyone."""
    level_s *= 1 - 1e-9
    if any(kind.step_s(portion) > level_s for kind in types):
        return False
    done = 0
    for kind in types:
        done += kind.count * within(
            kind, level_s, granularity=portion, smallest=portion, most=total
        )
    return done >= total


def equal_sizes(cards: Sequence[Card], total: int, least: int = 1) -> tuple[Sizes, ...]:
    """Gives every GPU equally many samples, the first ones one more where that does not divide."""
    return by_weight(cards, total, [1.0] * len(cards), least)


def by_weight(
    cards: Sequence[Card], total: int, weights: Sequence[float], least: int = 1
) -> tuple[Sizes, ...]:
    """Shares in proportion to the weight of a GPU of each type, in multiples of `least`."""
    whole = sum(card.count * weight for card, weight in zip(cards, weights, strict=True))
    of_types = proportional(
        total // least,
        [card.count * weight / whole for card, weight in zip(cards, weights, strict=True)],
    )
    sizes = []
    for card, samples in zip(cards, of_types, strict=True):
        size, more = divmod(samples, card.count)
        pairs = (((size + 1) * least, more), (size * least, card.count - more))
        sizes.append(tuple(pair for pair in pairs if pair[1]))
    return tuple(sizes)


def option_of(
    kind: PlanKind,
    name: str,
    cards: Sequence[Card],
    sizes: Sequence[Sizes],
    *,
    everyone: Sequence[Card],
    job: Job,
) -> PlanOption:
    """Predicts the step of one way to divide it.

    Args:
        cards: of the GPUs that take part.
        sizes: of each type, in their order.
        everyone: all types of the plan: what the efficiency is measured against.
    """
    num_gpus = num_gpus_of(cards)
    total = sum(size * number for pairs in sizes for size, number in pairs)
    if any(size == 0 for pairs in sizes for size, _ in pairs):
        reason = {"step_s": "a GPU would get no sample"}
        return PlanOption(
            kind=kind, name=name, num_gpus=num_gpus, global_batch=total, unavailable=reason
        )
    shares, rank = [], 0
    for card, pairs in zip(cards, sizes, strict=True):
        for size, number in pairs:
            shares.append(
                PlanShare(
                    name=card.name,
                    first_rank=rank,
                    num_gpus=number,
                    batch_size=size,
                    micro_batches=card.steps.micro_batches(size),
                    predicted_step_s=job.factor_on(num_gpus) * card.steps.step_s(size),
                    gradient_weight=size * num_gpus / total,
                    multiple_of=card.steps.multiple_of,
                )
            )
            rank += number
    compute_s = max(share.predicted_step_s for share in shares)
    sync_s, why_no_sync = job.sync_at(num_gpus)
    step_s = compute_s + (sync_s or 0.0)
    rate = total / step_s
    unavailable = {} if sync_s is not None else {"sync_s": why_no_sync}
    tokens = _tokens(cards)
    if tokens is None:
        unavailable["tokens_per_s"] = "its batches are not known to be sequences"
    watts = _watts(cards, sizes)
    if watts is None:
        unavailable["samples_per_joule"] = "not every record has its power"
    price = _price_per_s(cards)
    if price is None:
        unavailable["samples_per_price"] = "not every type has a --price"

    def per(unit_per_s: float | None, tokens_each: float | None = 1.0) -> float | None:
        if not unit_per_s or tokens_each is None:
            return None
        return rate * tokens_each / unit_per_s

    return PlanOption(
        kind=kind,
        name=name,
        num_gpus=num_gpus,
        global_batch=total,
        shares=tuple(shares),
        compute_s=compute_s,
        sync_s=sync_s,
        step_s=step_s,
        samples_per_s=rate,
        tokens_per_s=None if tokens is None else rate * tokens,
        epoch_s=job.epoch_s(total, step_s),
        efficiency=rate / rate_of(everyone),
        samples_per_joule=per(watts),
        tokens_per_joule=per(watts, tokens),
        samples_per_price=per(price),
        tokens_per_price=per(price, tokens),
        unavailable=unavailable,
    )


def _tokens(cards: Sequence[Card]) -> float | None:
    """Tokens of a sample: of one data set, whichever GPU saw it."""
    known = [card.tokens_per_sample for card in cards if card.tokens_per_sample is not None]
    return sum(known) / len(known) if len(known) == len(cards) else None


def _watts(cards: Sequence[Card], sizes: Sequence[Sizes]) -> float | None:
    total = 0.0
    for card, pairs in zip(cards, sizes, strict=True):
        for size, number in pairs:
            power = card.watts_at(card.steps.micro_size(size))
            if power is None:
                return None
            total += number * power
    return total


def _price_per_s(cards: Sequence[Card]) -> float | None:
    prices = [card.price for card in cards]
    if any(price is None for price in prices):
        return None
    return sum(card.count * (card.price or 0.0) for card in cards) / 3600
