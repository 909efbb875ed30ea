"""What two or more batch sizes say about the step at one of them."""

from __future__ import annotations

from math import inf, log

from ...records import Record, TimeLaw, Trial
from .measurements import Measurements
from .memory_guard import LEAST_STEP, room_ends
from .multiples import turned_down
from .thresholds import PAYING_GAIN, SATURATED_GAIN

MEMORY_REACH = 4
"""A size that ran out of memory forbids growth from sizes down to this part of it."""
WIDE_RATIO = 4
"""Ratio of the largest to the smallest size from which on two of them show the fixed part."""
QUICKER = 0.8
"""A larger batch that takes surely less than this part of a smaller one's time was measured while
the machine did something else: no kernel saves so much."""

APART = 1.3
"""Ratio of two sizes from which on their times show a slope, and not the noise."""
TAKEN_OVER = 1.1
"""On a GPU a step that takes so much longer than the smaller sizes let expect may follow the GPU
alone. Where it takes less, the GPU would have to take over from the host just before this size."""


class Scaling(Record, frozen=True, kw_only=True):
    """What two or more sizes say about the step at one of them.

    Attributes:
        gain: marginal gain around the size, with its range by the intervals.
        fixed_share: part of the step that the batch does not change, 0..1, with its range.
        at_memory_limit: a size not much larger ran out of memory, or would take too much.
        turned_down: the script ended at every other size that was tried, and not for memory.
        contradicted: a larger batch took much less time than a smaller one; then the times say
            nothing about the rest.
        held_up: other sizes were timed, but too few of their steps were clean.
    """

    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    fixed_share: float | None = None
    fixed_low: float | None = None
    fixed_high: float | None = None
    at_memory_limit: bool = False
    turned_down: bool = False
    contradicted: bool = False
    held_up: bool = False

    @property
    def pays(self) -> bool:
        """Whether a larger batch clearly pays by the timed sizes, the noise taken into account."""
        return self.gain_low is not None and self.gain_low >= PAYING_GAIN

    @property
    def may_pay(self) -> bool:
        """Whether the timed sizes speak for a larger batch, surely but little or much in doubt."""
        if self.gain is None or self.gain_low is None:
            return False
        return self.gain >= PAYING_GAIN or self.gain_low >= SATURATED_GAIN


def scaling_at(measurements: Measurements, batch_size: int, law: TimeLaw | None) -> Scaling:
    """What the other sizes of a record say about one."""
    sizes = steady(measurements.best_timed)
    at_memory_limit = _at_the_limit(measurements, batch_size)
    others_refused = measurements.sizes_that_ran == {batch_size} and bool(
        turned_down(measurements.failed)
    )
    contradicted = _contradicted(sizes)
    if contradicted or batch_size not in sizes:  # beside others its time says nothing
        return Scaling(
            at_memory_limit=at_memory_limit, turned_down=others_refused, contradicted=contradicted
        )
    gain = marginal_gain(sizes, batch_size)
    fixed = _fixed_share(sizes, batch_size, law)
    device = measurements.record.device
    if fixed is not None and device is not None and device.kind != "cpu":
        fixed = min(fixed[0], _hidden_by_a_gpu(sizes, batch_size)), *fixed[1:]
    return Scaling(
        gain=None if gain is None else gain[1],
        gain_low=None if gain is None else gain[0],
        gain_high=None if gain is None else gain[2],
        fixed_share=None if fixed is None else fixed[1],
        fixed_low=None if fixed is None else fixed[0],
        fixed_high=None if fixed is None else fixed[2],
        at_memory_limit=at_memory_limit,
        turned_down=others_refused,
        held_up=gain is None and marginal_gain(measurements.best_timed, batch_size) is not None,
    )


def steady(sizes: dict[int, Trial]) -> dict[int, Trial]:
    """The sizes whose step time is that of clean steps.

    What neighbours on the cores add is no cost of the step.
    """
    return {size: trial for size, trial in sizes.items() if not trial.contended}


def _contradicted(sizes: dict[int, Trial]) -> bool:
    """Whether a larger batch took much less time than a smaller one, by their intervals."""
    fastest_high = float("inf")
    for size in sorted(sizes, reverse=True):
        step_s = sizes[size].step_s
        if step_s is None:
            continue
        if fastest_high < QUICKER * step_s.low:
            return True
        fastest_high = min(fastest_high, step_s.high)
    return False


def marginal_gain(sizes: dict[int, Trial], batch_size: int) -> tuple[float, float, float] | None:
    """Low, middle and high of d ln(samples/s) / d ln(batch) around a size, by the intervals.

    Taken to the nearest larger size that ran at least `APART` times as large, else from the nearest
    smaller one. 1: a larger batch is free. 0: it buys nothing. Without intervals it has no ends.
    """
    larger = [size for size in sizes if size >= batch_size * APART]
    smaller = [size for size in sizes if size * APART <= batch_size]
    if larger:
        low, high = batch_size, min(larger)
    elif smaller:
        low, high = max(smaller), batch_size
    else:
        return None
    at_low, at_high = sizes[low].samples_per_s, sizes[high].samples_per_s
    if at_low is None or at_high is None:
        return None
    ratio = log(high / low)
    middle = log(at_high.median / at_low.median) / ratio
    if not (at_low.is_interval and at_high.is_interval):
        return -inf, middle, inf
    return log(at_high.low / at_low.high) / ratio, middle, log(at_high.high / at_low.low) / ratio


def input_share(trial: Trial) -> float:
    """Share of the step spent waiting for the loader; 0 where it was not measured."""
    if trial.input_wait_s is None or trial.step_s is None or trial.step_s.median <= 0:
        return 0.0
    return min(1.0, trial.input_wait_s.median / trial.step_s.median)


def _fixed_share(
    sizes: dict[int, Trial], batch_size: int, law: TimeLaw | None
) -> tuple[float, float, float] | None:
    """Low, middle and high of the part of the step that the batch does not change.

    By the law, give or take its largest miss; without one by the smallest and the largest size.
    """
    if law is not None:
        share = law.fixed_share(batch_size)
        return max(share - law.residual, 0.0), share, min(share + law.residual, 1.0)
    times = {size: trial.step_s for size, trial in sizes.items() if trial.step_s is not None}
    small, large = min(times), max(times)
    if large < WIDE_RATIO * small or batch_size not in times:
        return None
    if not (times[small].is_interval and times[large].is_interval):
        return None

    def share_of(at_small: float, at_large: float) -> float:
        slope = max(at_large - at_small, 0.0) / (large - small)
        fixed = max(at_small - slope * small, 0.0)
        return fixed / (fixed + slope * batch_size) if fixed + slope > 0 else 1.0

    small_time, large_time = times[small], times[large]
    return (
        share_of(small_time.low, large_time.high),
        share_of(small_time.median, large_time.median),
        share_of(small_time.high, large_time.low),
    )


def _hidden_by_a_gpu(sizes: dict[int, Trial], batch_size: int) -> float:
    """The part of the step, at least, that the batch does not change on a GPU.

    A GPU computes while its host launches, so a step takes the longer of both: flat while the host
    is, and then in proportion to the batch. A line through a size of each kind has a fixed part
    that the larger one lacks. The next larger size shows it, for the curve only gets steeper.
    Without one the line through the smaller sizes tells: where that goes on, both ends of it follow
    the same.
    """
    times = {
        size: trial.step_s
        for size, trial in sizes.items()
        if trial.step_s is not None and trial.step_s.is_interval
    }
    if batch_size not in times:
        return 1.0
    own = times[batch_size]
    larger = [size for size in times if size >= batch_size * APART]
    if larger:
        size = min(larger)
        slope = (times[size].high - own.low) / (size - batch_size)
        return max(1 - slope * batch_size / own.low, 0.0)
    smaller = sorted(size for size in times if size * APART <= batch_size)
    if not smaller:
        return 1.0
    last = smaller[-1]
    expected_s = times[last].high
    if before := [size for size in smaller if size * APART <= last]:
        slope = (times[last].high - times[before[-1]].low) / (last - before[-1])
        expected_s += max(slope, 0.0) * (batch_size - last)
    return 0.0 if own.median >= TAKEN_OVER * expected_s else 1.0


def _at_the_limit(measurements: Measurements, batch_size: int) -> bool:
    failed = measurements.failed
    refused = [trial.batch_size for trial in failed if trial.outcome == "out_of_memory"]
    if refused and min(refused) <= batch_size * MEMORY_REACH:
        return True
    ends = room_ends(measurements) if batch_size in measurements.trusted_memory else None
    return ends is not None and ends < batch_size * LEAST_STEP


def slower_than_larger(sizes: dict[int, Trial], factor: float) -> list[int]:
    """Sizes whose step took `factor` times as long as that of a larger size, or longer.

    Of as many batches: a script that steps after so many samples needs fewer of a larger size.
    """
    times = {
        size: trial.step_s.median
        for size, trial in sizes.items()
        if trial.step_s is not None and not trial.contended
    }
    return [
        size
        for size, time in times.items()
        if any(
            other > size
            and time > factor * times[other]
            and sizes[other].micro_batches == sizes[size].micro_batches
            for other in times
        )
    ]
