"""Sizes compared in rounds: what the machine does meanwhile hits all of them alike.

A processor drifts by a fifth within seconds, and no counter shows it. Two sizes measured one
after the other therefore differ by luck. In a round the sizes take short turns; a model of two
effects, one of the size and one of the round, then takes the drift out:

    log throughput = size + round + rest
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import exp, log
from statistics import fmean

from ..records import Spread, Trial
from ..spread import spread_of

MAX_SWEEPS = 50
SETTLED = 1e-6
"""Alternations between the two effects end at a change this small; where all sizes are in all
rounds at the second."""

READING_STEPS = 6
"""Steps of a turn, as a rule."""
READING_S = 0.3
"""A turn takes at least about so long."""


def reading_s(step_s: float) -> float:
    """Estimated seconds of a turn of a size with this step time."""
    return max(READING_S, READING_STEPS * step_s)


def speeds(trials: Iterable[Trial]) -> dict[int, Spread]:
    """Samples per second by size, the drift between rounds taken out.

    The level is that of an average round. The interval is the order-statistic one of what is
    left of each reading. Sizes that were never in one round with another are left out.

    Args:
        trials: timed ones; those of no round, and disturbed ones that have others, are ignored.
    """
    readings = _readings(trials)
    if not readings:
        return {}
    by_round = _effects(readings)
    level = fmean(by_round.values())
    left: defaultdict[int, list[float]] = defaultdict(list)
    for number, found in readings.items():
        for size, value in found.items():
            left[size].append(exp(value - by_round[number] + level))
    spreads = {size: spread_of(values) for size, values in sorted(left.items())}
    return {size: one for size, one in spreads.items() if one is not None}


def _effects(readings: dict[int, dict[int, float]]) -> dict[int, float]:
    """The effect of each round, by least squares: means of what the other effect leaves."""
    by_round = {number: fmean(found.values()) for number, found in readings.items()}
    for _ in range(MAX_SWEEPS):
        rest: defaultdict[int, list[float]] = defaultdict(list)
        for number, found in readings.items():
            for size, value in found.items():
                rest[size].append(value - by_round[number])
        by_size = {size: fmean(values) for size, values in rest.items()}
        before = by_round
        by_round = {
            number: fmean([value - by_size[size] for size, value in found.items()])
            for number, found in readings.items()
        }
        if max(abs(by_round[one] - before[one]) for one in by_round) < SETTLED:
            break
    return by_round


def rounds_of(trials: Iterable[Trial]) -> dict[int, list[Trial]]:
    """The trials of each round that measured time, in order."""
    found: defaultdict[int, list[Trial]] = defaultdict(list)
    for trial in trials:
        if trial.round is not None and trial.ran and trial.samples_per_s is not None:
            found[trial.round].append(trial)
    return dict(found)


def _readings(trials: Iterable[Trial]) -> dict[int, dict[int, float]]:
    """Round to size to log of samples per second; rounds of one size say nothing."""
    rounds = rounds_of(trials)
    quiet = {one.batch_size for found in rounds.values() for one in found if not one.doubts}
    readings = {
        number: {
            one.batch_size: log(one.samples_per_s.median)
            for one in found
            if one.samples_per_s is not None and not (one.doubts and one.batch_size in quiet)
        }
        for number, found in rounds.items()
    }
    return {number: found for number, found in readings.items() if len(found) > 1}
