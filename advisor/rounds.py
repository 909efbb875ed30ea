"""Sizes that took turns, compared: what the machine does meanwhile hits all of them alike.

A processor that others share is slower by a fifth for seconds, and no counter shows it. Two
sizes measured one after the other therefore differ by luck. Where they take turns, a model of two
effects, one of the size and one of the round, takes the drift out:

    log throughput = size + round + rest
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import exp, log
from statistics import fmean

from ..records import Spread, Turns
from ..spread import spread_of

MAX_SWEEPS = 50
SETTLED = 1e-6
"""Alternations between the two effects end at a change this small; where all sizes are in all
rounds at the second."""

Readings = list[dict[int, float]]
"""A round each: size to log of samples per second."""


def speeds(turns: Iterable[Turns], micro_batches: int = 1) -> dict[int, Spread]:
    """Samples per second by size, the drift between rounds taken out.

    The level is that of an average round. The interval is the order-statistic one of what is
    left of each reading. Sizes that were never in one round with another are left out.

    Args:
        micro_batches: batches per optimizer step.
    """
    readings = readings_of(turns, micro_batches)
    if not readings:
        return {}
    by_round = _effects(readings)
    level = fmean(by_round)
    left: defaultdict[int, list[float]] = defaultdict(list)
    for effect, found in zip(by_round, readings, strict=True):
        for size, value in found.items():
            left[size].append(exp(value - effect + level))
    spreads = {size: spread_of(values) for size, values in sorted(left.items())}
    return {size: one for size, one in spreads.items() if one is not None}


def ratio(turns: Iterable[Turns], size: int, other: int) -> Spread | None:
    """Throughput of `size` over that of `other`, from the rounds that had both."""
    return spread_of(
        [
            exp(found[size] - found[other])
            for found in readings_of(turns)
            if size in found and other in found
        ]
    )


def readings_of(turns: Iterable[Turns], micro_batches: int = 1) -> Readings:
    """The rounds that say something: those of more than one size."""
    rounds = [
        {
            size: log(size * micro_batches / seconds)
            for size, seconds in zip(one.sizes, row, strict=True)
            if seconds is not None and seconds > 0
        }
        for one in turns
        for row in one.step_s
    ]
    return [found for found in rounds if len(found) > 1]


def _effects(readings: Readings) -> list[float]:
    """The effect of each round, by least squares: means of what the other effect leaves."""
    by_round = [fmean(found.values()) for found in readings]
    for _ in range(MAX_SWEEPS):
        rest: defaultdict[int, list[float]] = defaultdict(list)
        for effect, found in zip(by_round, readings, strict=True):
            for size, value in found.items():
                rest[size].append(value - effect)
        by_size = {size: fmean(values) for size, values in rest.items()}
        before = by_round
        by_round = [
            fmean([value - by_size[size] for size, value in found.items()]) for found in readings
        ]
        if max(abs(one - two) for one, two in zip(by_round, before, strict=True)) < SETTLED:
            break
    return by_round
