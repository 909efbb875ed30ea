"""The peak memory of a training step as a law of the batch size: max(floor, a + b * batch).

The search for memory and `estimate` make the same steps on fake tensors, and this is the one law
that both read from their peaks. Readings of a real device correct it in memory_prior.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...records import FakeTrial

SMALLEST = 2
"""Batch of the first fake step: a batch norm in training refuses a batch of 1."""
GROWTH = 4
"""Factor from the size of one fake step to that of the next."""
MAX_SLOPE_CHANGE = 0.05
"""Two pairs of sizes whose slopes differ by more do not lie on one line."""
ON_THE_FLOOR = 0.001
"""A peak within this share of the floor may be the floor's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLaw:
    """Peak bytes of a step: max(floor_bytes, fixed_bytes + sample_bytes * batch).

    The peak is the largest of several lines in the batch, so it is convex: up to the last size but
    one that was traced the law is at most too low, from there to the last at most too high, beyond
    it at most too low.

    Attributes:
        floor_bytes: the peak inside the optimizer's step, the same at any size; 0 if not given.
        fixed_bytes: where the line meets a batch of 0; it may be negative.
        sample_bytes: bytes that one more sample takes, above 0.
        residual: the largest distance from the line of a size above the floor, as a share of its
            peak; `None` with two such sizes, through which any line goes.
    """

    floor_bytes: float
    fixed_bytes: float
    sample_bytes: float
    residual: float | None

    def peak_bytes(self, batch: int) -> float:
        """The peak of a step of `batch` samples."""
        return max(self.floor_bytes, self.fixed_bytes + self.sample_bytes * batch)

    def largest_batch(self, capacity_bytes: float) -> int:
        """The most samples whose step fits into `capacity_bytes`; 0 if not even 1 does."""
        if self.peak_bytes(1) > capacity_bytes:
            return 0
        batch = int((capacity_bytes - self.fixed_bytes) // self.sample_bytes)
        # The division may round up across a whole number.
        return batch if self.peak_bytes(batch) <= capacity_bytes else batch - 1


def law_of_trials(trials: Sequence[FakeTrial]) -> StepLaw | str:
    """The law of the tensors of steps on fake tensors, or why there is none."""
    peaks = {trial.batch_size: trial.peak_bytes for trial in trials}
    return law_of(peaks, floor_of(trials, peaks), passes_of(trials))


def passes_of(trials: Sequence[FakeTrial]) -> dict[int, int]:
    """The peaks outside the optimizer's step by size; empty where they are not known of each."""
    if not all(trial.outside_bytes for trial in trials):
        return {}
    return {trial.batch_size: trial.outside_bytes for trial in trials}


def law_of(
    peaks: Mapping[int, int], floor_bytes: float = 0.0, passes: Mapping[int, int] | None = None
) -> StepLaw | str:
    """The law of steps on fake tensors, or why there is none.

    Args:
        peaks: by size; the smallest one's is the least that any size takes.
        floor_bytes: what is known to be taken at any size; see `floor_of`.
        passes: the peaks outside the optimizer's step, if they are known: these show the line below
            the floor as well.
    """
    floor = max(_least(peaks), floor_bytes)
    if not passes:
        return fit_step_law(peaks, floor_bytes=floor)
    line = fit_step_law(passes)
    if isinstance(line, str):
        return line
    residual = _residual(line.fixed_bytes, line.sample_bytes, _above(peaks, floor))
    return replace(line, floor_bytes=floor, residual=residual)


def floor_of(trials: Sequence[FakeTrial], peaks: Mapping[int, int]) -> int:
    """Bytes that are known to be taken at any size: what the optimizer's step needs.

    Args:
        trials: steps on fake tensors.
        peaks: of each, by size, as they are counted: tensors, or what an allocator reserves.
    """
    floor = 0
    for trial in trials:
        known = trial.parameter_bytes + trial.gradient_bytes + trial.optimizer_bytes
        floor = max(floor, known)
        if trial.working_bytes < trial.peak_bytes:  # it lies in the optimizer's step
            floor = max(floor, peaks[trial.batch_size])
    return floor


def num_above_floor(peaks: Mapping[int, int], floor_bytes: float) -> int:
    """Sizes that tell of the line, for all that is known so far; arguments as for `law_of`."""
    floor = max(_least(peaks), floor_bytes)
    return len(_above(peaks, floor))


def fit_step_law(peaks: Mapping[int, float], *, floor_bytes: float = 0.0) -> StepLaw | str:
    """The law through the peaks of two or more batch sizes, or why there is none.

    The line goes through the two largest sizes: from smaller ones alone it can be wrong by far,
    as the peak may lie elsewhere in the step there. A third size must agree with its slope.

    Args:
        peaks: peak bytes of a step, by batch size.
        floor_bytes: the peak inside the optimizer's step; sizes whose peak is no higher tell
            nothing of the line.
    """
    above = _above(peaks, floor_bytes)
    if len(above) < 2:
        return "fewer than two sizes took more memory than the optimizer's step"
    (last, last_peak), (before, before_peak) = above[-1], above[-2]
    slope = (last_peak - before_peak) / (last - before)
    if slope <= 0:
        return f"a batch of {last} took no more memory than one of {before}"
    if len(above) > 2:
        first, first_peak = above[-3]
        earlier = (before_peak - first_peak) / (before - first)
        if abs(earlier - slope) > MAX_SLOPE_CHANGE * slope:
            return (
                f"memory does not grow evenly: {earlier:.0f} bytes a sample from {first} to "
                f"{before}, {slope:.0f} from {before} to {last}"
            )
    fixed = last_peak - slope * last
    return StepLaw(
        floor_bytes=floor_bytes,
        fixed_bytes=fixed,
        sample_bytes=slope,
        residual=_residual(fixed, slope, above),
    )


def _residual(fixed: float, slope: float, above: list[tuple[int, float]]) -> float | None:
    """The largest miss of the line through the last two of these."""
    misses = [abs(fixed + slope * batch - peak) / peak for batch, peak in above[:-2]]
    return max(misses, default=None)


def _above(peaks: Mapping[int, float], floor_bytes: float) -> list[tuple[int, float]]:
    """Sizes above the floor and their peaks, ascending."""
    above = {size: peak for size, peak in peaks.items() if peak > floor_bytes * (1 + ON_THE_FLOOR)}
    return sorted(above.items())


def _least(peaks: Mapping[int, int]) -> int:
    return peaks[min(peaks)] if peaks else 0
