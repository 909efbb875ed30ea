"""Sizes that took turns, compared: what the machine does meanwhile hits all of them alike.

A processor that others share is slower by a fifth for seconds, and no counter shows it. Two
sizes measured one after the other therefore differ by luck. Where they take turns, a model of two
effects, one of the size and one of the round, takes the drift out:

    log throughput = size + round + rest
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable
from math import exp, log
from statistics import fmean, median
from typing import NamedTuple

import msgspec

from ...records import Spread, Turns
from ...spread import CONFIDENCE, spread_of
from . import turns_by_sums as by_sums
from .turn_effects import Readings, effects

CLEAN_ROUNDS = 4
"""So many rounds in which nothing was held up make the others unnecessary."""
LEAST_SHARE = 0.01
"""No turn would have taken less than this share of its time."""


def speeds(turns: Iterable[Turns], micro_batches: int = 1) -> dict[int, Spread]:
    """Samples per second by size, the drift between rounds taken out.

    The level is that of an average round. The interval is the order-statistic one of what is
    left of each reading; where steps waited for a core it reaches up to what they would have
    reached without that. Sizes that were never in one round with another are left out.

    Args:
        micro_batches: batches per optimizer step.
    """
    return dict(_speeds(tuple(turns), micro_batches))


@functools.lru_cache(maxsize=16)  # an answer asks for the same rounds some thirty times
def _speeds(turns: tuple[Turns, ...], micro_batches: int) -> dict[int, Spread]:
    if any(comparison.unsure for comparison in turns):
        return by_sums.speeds(turns, micro_batches)
    readings = readings_of(turns, micro_batches)
    if not readings:
        return {}
    by_round = effects(readings)
    level = fmean(by_round)
    left: defaultdict[int, list[float]] = defaultdict(list)
    for effect, reading in zip(by_round, readings, strict=True):
        for size, value in reading.items():
            left[size].append(exp(value - effect + level))
    spreads = {size: spread_of(values) for size, values in sorted(left.items())}
    return {
        size: reaching_up(spread, _lost_share(turns, size))
        for size, spread in spreads.items()
        if spread is not None
    }


def reaching_up(spread: Spread, lost_share: float) -> Spread:
    """The spread of a rate whose steps lost this share of their time to something outside."""
    if not lost_share:
        return spread
    return msgspec.structs.replace(spread, high=spread.high / (1 - lost_share))


def ratio(
    turns: Iterable[Turns], size: int, other: int, confidence: float = CONFIDENCE
) -> Spread | None:
    """Throughput of `size` over that of `other`, from the rounds that had both.

    Where steps lost time to others, what they would have taken alone lies between their time and
    their time without that. Both sizes took turns beside the same neighbours, so that the share of
    the counted time that was truly lost is one for both: the interval reaches from the ratio with
    all of it to the ratio with none. Rounds in which neither lost any decide alone where there are
    enough of them.
    """
    turns = tuple(turns)
    if any(comparison.unsure for comparison in turns):
        return by_sums.ratio(turns, size, other, confidence)
    readings = _decisive(turns, size, other)
    spread = spread_of([reading.ratio for reading in readings], confidence)
    alone = spread_of(
        [reading.ratio * reading.theirs / reading.mine for reading in readings], confidence
    )
    if spread is None or alone is None:
        return None
    return msgspec.structs.replace(
        spread, low=min(spread.low, alone.low), high=max(spread.high, alone.high)
    )


def chained_ratio(
    turns: Iterable[Turns], size: int, other: int, confidence: float = CONFIDENCE
) -> Spread | None:
    """`ratio`, through sizes that took turns with both where the two never did.

    The fewest links are taken. Each one adds its doubt: the ends are the products of their ends.
    """
    turns = tuple(turns)
    reached: dict[int, Spread | None] = {other: None}
    nearest = [other]
    while nearest and size not in reached:
        following: dict[int, Spread] = {}
        for link in nearest:
            so_far = reached[link]
            for met in {each for comparison in turns for each in comparison.sizes} - set(reached):
                further = ratio(turns, met, link, confidence)
                if further is None:
                    continue
                whole = further if so_far is None else _product(further, so_far)
                known = following.get(met)
                if known is None or whole.relative_half_width < known.relative_half_width:
                    following[met] = whole
        reached.update(following)
        nearest = list(following)
    return reached.get(size)


def _product(one: Spread, another: Spread) -> Spread:
    return Spread(
        median=one.median * another.median,
        low=one.low * another.low,
        high=one.high * another.high,
        num_samples=min(one.num_samples, another.num_samples),
        confidence=min(one.confidence, another.confidence),
    )


def _decisive(turns: Iterable[Turns], size: int, other: int) -> list[_Reading]:
    """Two sizes in the rounds that had both; the clean ones alone where they are enough."""
    readings: list[_Reading] = []
    for comparison in turns:
        if not {size, other} <= set(comparison.sizes):
            continue
        mine, theirs = comparison.sizes.index(size), comparison.sizes.index(other)
        for number, row in enumerate(comparison.step_s):
            a, b = row[mine], row[theirs]
            if a and b and min(a, b) > 0:
                alone = _alone(comparison, number, mine), _alone(comparison, number, theirs)
                readings.append(_Reading(size / other * b / a, *alone))
    clean = [reading for reading in readings if reading.mine == reading.theirs == 1]
    return clean if len(clean) >= CLEAN_ROUNDS else readings


class _Reading(NamedTuple):
    """Two sizes in one round: the ratio of their rates, and the share of each time not lost."""

    ratio: float
    mine: float
    theirs: float


def _alone(turns: Turns, number: int, column: int) -> float:
    """The share of a turn's time that was not lost, above 0."""
    seconds = turns.step_s[number][column]
    if not turns.lost_s or not seconds:
        return 1.0
    return max(LEAST_SHARE, 1 - turns.lost_s[number][column] / seconds)


def _lost_share(turns: Iterable[Turns], size: int) -> float:
    """The share of its time that a usual turn of a size lost."""
    shares = [
        1 - _alone(comparison, number, comparison.sizes.index(size))
        for comparison in turns
        if size in comparison.sizes
        for number, row in enumerate(comparison.step_s)
        if row[comparison.sizes.index(size)]
    ]
    return median(shares) if shares else 0.0


def readings_of(turns: Iterable[Turns], micro_batches: int = 1) -> Readings:
    """The rounds that say something: those of more than one size."""
    rounds = [
        {
            size: log(size * micro_batches / seconds)
            for size, seconds in zip(comparison.sizes, row, strict=True)
            if seconds is not None and seconds > 0
        }
        for comparison in turns
        for row in comparison.step_s
    ]
    return [reading for reading in rounds if len(reading) > 1]
