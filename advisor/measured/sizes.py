"""Which sizes are worth trying: round ones, within the limits of the goal and the data."""

from __future__ import annotations

from ..tails.conditions import SMALL_BATCH_NORM
from .kernel_limits import kernel_limit_of
from .length_risk import MAX_CHANCE
from .measurements import Measurements
from .multiples import REFUSALS
from .once import once

MIN_STEPS_AN_EPOCH = 10
"""Fewer optimizer steps an epoch make a poor training; sizes are kept below that."""


def round_size(size: float) -> int:
    """The nearest size that kernels like: multiples of 8 from 32 on, of 4 from 16 on.

    >>> [round_size(size) for size in (0.3, 5.4, 13.2, 30, 101, 1000.7)]
    [1, 5, 13, 32, 104, 1000]
    """
    step = 8 if size >= 30 else 4 if size >= 15 else 1
    return max(1, round(size / step) * step)


def effective_batch(measurements: Measurements) -> int:
    """Samples per optimizer step as the script is written."""
    assert measurements.own_size is not None
    return measurements.own_size * measurements.script.micro_batches


def divisors_of(measurements: Measurements, most: int) -> list[int]:
    """The sizes up to a bound that divide the effective batch, and that the script takes, if any
    do; ascending."""
    whole = effective_batch(measurements)
    divisors = [size for size in range(1, min(whole, most) + 1) if whole % size == 0]
    return list(filter(measurements.multiples.takes, divisors)) or divisors


@once
def largest_allowed(measurements: Measurements) -> int:
    """The upper bound of the goal, the data and kernels, whatever the memory says."""
    goal, num_units = measurements.goal, measurements.script.num_units
    bounds = [1 << 24]
    if goal.max_batch is not None:
        bounds.append(goal.max_batch)
    if num_units is not None:
        # A larger batch than the data would make no step under drop_last, one otherwise.
        bounds.append(max(1, num_units))
    if goal.keep_effective_batch and measurements.own_size is not None:
        bounds.append(effective_batch(measurements))
    lengths_bound = bound_by_lengths(measurements)
    if lengths_bound is not None:
        bounds.append(lengths_bound)
    steps_bound = bound_by_steps(measurements)
    if steps_bound is not None:
        bounds.append(steps_bound)
    limits = [kernel_limit_of(failure, smaller_ran=False) for failure in measurements.failed]
    within = [limit.largest for limit in limits if limit is not None and limit.largest]
    ran = max(measurements.sizes_that_ran, default=1)
    most = min([*bounds, *(max(ran, largest) for largest in within)])
    return measurements.multiples.nearest(most, most)


@once
def bound_by_steps(measurements: Measurements) -> int | None:
    """The size that leaves MIN_STEPS_AN_EPOCH optimizer steps, never below the script's own and the
    least multiple that is asked for.

    Tiny models get faster up to the whole data set in one batch, which is no training. The bound
    does not hold where the largest size is asked for, `--max-batch` names one, or the effective
    batch is kept.
    """
    goal, script, own = measurements.goal, measurements.script, measurements.own_size
    if own is None or goal.kind == "memory" or goal.max_batch is not None:
        return None
    if goal.keep_effective_batch:  # any size has as many steps
        return None
    discovery = measurements.record.discovery
    by_samples = discovery is None or discovery.axis == "samples"
    num_units = measurements.epoch_samples if by_samples else script.num_units
    if num_units is None:
        return None
    steps = num_units * script.steps_per_batch
    # A script that steps after so many samples needs fewer batches for it, the larger they are.
    trials = measurements.record.trials
    seen = [trial.micro_batches for trial in trials if trial.ran and trial.kind == "timed"]
    fewest = min([script.micro_batches, *filter(None, seen)])
    most = steps // (MIN_STEPS_AN_EPOCH * fewest)
    return max(most, own, goal.multiple_of)


@once
def bound_by_lengths(measurements: Measurements) -> int | None:
    """The largest size whose epochs have room by the lengths; `None` where these tell nothing."""
    risk = measurements.length_risk
    if isinstance(risk, str):
        return None
    fitting, failing = 1, 1 << 24
    while failing - fitting > max(1, fitting // 64):
        between = (fitting * failing) ** 0.5 if failing > 2 * fitting else (fitting + failing) / 2
        middle = int(between)
        middle = min(failing - 1, max(fitting + 1, middle))
        if risk.chance(middle) > MAX_CHANCE:
            failing = middle
        else:
            fitting = middle
    return fitting


def smallest_allowed(measurements: Measurements) -> int:
    """The lower bound: BatchNorm cannot train on one value per channel, a budget below the
    longest sequence would leave it out, unless the script's own is, and a script may turn small
    sizes down.
    """
    script = measurements.script
    if script.longest > 1:
        return min(script.longest, measurements.own_size or script.longest)
    smallest = min(measurements.sizes_that_ran, default=0)
    too_small = [
        failure.batch_size
        for failure in measurements.failed
        if failure.outcome in REFUSALS and failure.batch_size < smallest
    ]
    least = max(measurements.goal.multiple_of, 2 if script.has_batch_norm else 1)
    return max([least, *(size + 1 for size in too_small)])


def smallest_sound(measurements: Measurements) -> int:
    """The smallest size worth recommending: with BatchNorm not below 8, unless the script's own
    size is.
    """
    if not measurements.script.has_batch_norm or measurements.own_size is None:
        return 1
    return min(SMALL_BATCH_NORM, measurements.own_size)


def allowed(measurements: Measurements, size: float, *, up: bool = False) -> int:
    """The nearest size that may be tried: rounded, bounded, one that the script takes, a divisor
    where the batch is kept.

    Args:
        up: prefer the next larger divisor over the nearest.
    """
    top, multiples = largest_allowed(measurements), measurements.multiples
    if measurements.goal.keep_effective_batch and measurements.own_size is not None:
        divisors = divisors_of(measurements, top)
        if up:
            return next((divisor for divisor in divisors if divisor >= size), divisors[-1])
        return min(divisors, key=lambda divisor: (abs(divisor - size), divisor))
    return multiples.nearest(round_size(size), top, up=up)


def stopped_by_steps(measurements: Measurements) -> int | None:
    """The bound by steps of an epoch, where it was what no larger size was tried for."""
    bound, goal = bound_by_steps(measurements), measurements.goal
    largest = max((trial.batch_size for trial in measurements.record.trials), default=0)
    # Rounding may leave the last size a little below the bound.
    if bound is None or not largest <= bound <= largest * 1.1:
        return None
    if goal.keep_effective_batch or goal.sizes:
        return None
    return None if measurements.record.observed is not None else bound  # a callback tries none
