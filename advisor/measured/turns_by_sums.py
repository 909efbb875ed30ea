"""Sizes that took turns with batches of uneven lengths: rates are ratios of sums over the rounds.

Rounds differ by what their batches held, and the few that met the longest take several times as
long: a median of rounds would leave these out. The interval is that of the linearised error
(Cochran, Sampling Techniques, 3rd ed., sections 6.4 and 6.19); what a round's machine does to
both sizes alike cancels out of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import exp, fsum, hypot, log, sqrt
from statistics import NormalDist, fmean
from typing import NamedTuple

import msgspec

from ...records import Spread, Turns
from ...spread import CONFIDENCE, rate_of_sums, student
from .turn_effects import effects

LEAST = 0.01
"""The low end of a rate is no less than this share of it."""


class Turn(NamedTuple):
    """What a turn's steps count for, in samples, and what they took; seconds lost of these."""

    amount: float
    seconds: float
    lost_s: float


def speeds(comparisons: Sequence[Turns], micro_batches: int) -> dict[int, Spread]:
    """Samples per second by size, the drift between comparisons taken out."""
    met = [turns_of(each, micro_batches) for each in comparisons]
    readings = [
        {
            size: log(fsum(turn.amount for turn in turns) / fsum(turn.seconds for turn in turns))
            for size, turns in each.items()
        }
        for each in met
    ]
    several = [number for number, reading in enumerate(readings) if len(reading) > 1]
    if not several:
        return {}
    drift = effects([readings[number] for number in several])
    level = fmean(drift)
    turns_at: defaultdict[int, list[Turn]] = defaultdict(list)
    for effect, number in zip(drift, several, strict=True):
        slower = exp(effect - level)
        for size, turns in met[number].items():
            turns_at[size] += [
                Turn(turn.amount, turn.seconds * slower, turn.lost_s * slower) for turn in turns
            ]
    rates: dict[int, Spread] = {}
    for size, turns in sorted(turns_at.items()):
        rate = rate_of_sums([turn.amount for turn in turns], [turn.seconds for turn in turns])
        if rate is not None and rate.median > 0:
            lost = fsum(turn.lost_s for turn in turns) / fsum(turn.seconds for turn in turns)
            rate = _widened(rate, _unsure(comparisons, size), CONFIDENCE)
            rates[size] = msgspec.structs.replace(rate, high=rate.high / max(LEAST, 1 - lost))
    return rates


def ratio(comparisons: Sequence[Turns], size: int, other: int, confidence: float) -> Spread | None:
    """Throughput of `size` over that of `other`, over the rounds that had both.

    Where steps lost time to others, the ends are the ratio with all of that time and with none.
    """
    pairs: list[tuple[Turn, Turn]] = []
    for comparison in comparisons:
        if {size, other} <= set(comparison.sizes):
            pairs += _pairs(comparison, size, other)
    if not pairs:
        return None
    mine, theirs = [a for a, _ in pairs], [b for _, b in pairs]
    middle = _rate(mine) / _rate(theirs)
    half, num = 0.0, len(pairs)
    if num > 1:
        squares = fsum((_off(a, mine) - _off(b, theirs)) ** 2 for a, b in pairs)
        half = middle * student(num - 1, confidence) * sqrt(squares / (num - 1) / num)
    alone = (1 - _lost_share(theirs)) / (1 - _lost_share(mine))  # over the ratio as it was
    spread = Spread(
        median=middle,
        low=max(LEAST * middle, middle - half) * min(1.0, alone),
        high=(middle + half) * max(1.0, alone),
        num_samples=num,
        confidence=confidence if num > 1 else 0.0,
    )
    unsure = hypot(_unsure(comparisons, size), _unsure(comparisons, other))
    return _widened(spread, unsure, confidence)


def turns_of(comparison: Turns, micro_batches: int) -> dict[int, list[Turn]]:
    """The turns of each size that have a time."""
    turns: defaultdict[int, list[Turn]] = defaultdict(list)
    for number in range(len(comparison.step_s)):
        for column, size in enumerate(comparison.sizes):
            turn = _turn(comparison, number, column, micro_batches)
            if turn is not None:
                turns[size].append(turn)
    return dict(turns)


def _pairs(comparison: Turns, size: int, other: int) -> list[tuple[Turn, Turn]]:
    columns = comparison.sizes.index(size), comparison.sizes.index(other)
    rounds = (
        tuple(_turn(comparison, number, column, 1) for column in columns)
        for number in range(len(comparison.step_s))
    )
    return [(a, b) for a, b in rounds if a is not None and b is not None]


def _turn(comparison: Turns, number: int, column: int, micro_batches: int) -> Turn | None:
    """Seconds stand as if every step had held its size in samples; here they are what they were."""
    seconds = comparison.step_s[number][column]
    amount = comparison.real[number][column] if comparison.real else None
    if not seconds or not amount:
        return None
    share = amount / (comparison.sizes[column] * micro_batches)
    lost_s = comparison.lost_s[number][column] if comparison.lost_s else 0.0
    return Turn(amount, seconds * share, lost_s * share)


def _rate(turns: Sequence[Turn]) -> float:
    return fsum(turn.amount for turn in turns) / fsum(turn.seconds for turn in turns)


def _off(turn: Turn, turns: Sequence[Turn]) -> float:
    """How far a turn is off the rate of all, a share of the mean turn."""
    mean_amount = fmean(each.amount for each in turns)
    return turn.amount / mean_amount - turn.seconds / fmean(each.seconds for each in turns)


def _lost_share(turns: Sequence[Turn]) -> float:
    lost = fsum(turn.lost_s for turn in turns) / fsum(turn.seconds for turn in turns)
    return min(1 - LEAST, lost)


def _unsure(comparisons: Sequence[Turns], size: int) -> float:
    """Standard error, a share, of what the mean batch of a size holds."""
    return max(
        (
            each.unsure[each.sizes.index(size)]
            for each in comparisons
            if each.unsure and size in each.sizes
        ),
        default=0.0,
    )


def _widened(spread: Spread, unsure: float, confidence: float) -> Spread:
    share = 1 + NormalDist().inv_cdf((1 + confidence) / 2) * unsure
    return msgspec.structs.replace(spread, low=spread.low / share, high=spread.high * share)
