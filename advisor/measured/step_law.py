"""The peak memory of a training step as a law of the batch size: max(floor, a + b * batch)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MAX_SLOPE_CHANGE = 0.05
"""Two pairs of sizes whose slopes differ by more do not lie on one line."""
ON_THE_FLOOR = 0.001
"""A peak within this share of the floor may be the floor's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLaw:
    """Peak bytes of a step: max(floor_bytes, fixed_bytes + sample_bytes * batch).

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


def fit_step_law(peaks: Mapping[int, float], *, floor_bytes: float = 0.0) -> StepLaw | str:
    """The law through the peaks of two or more batch sizes, or why there is none.

    The line goes through the two largest sizes: from smaller ones alone it can be wrong by far,
    as the peak may lie elsewhere in the step there. A third size must agree with its slope.

    Args:
        peaks: peak bytes of a step, by batch size.
        floor_bytes: the peak inside the optimizer's step; sizes whose peak is no higher tell
            nothing of the line.
    """
    above = sorted(
        (batch, peak) for batch, peak in peaks.items() if peak > floor_bytes * (1 + ON_THE_FLOOR)
    )
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
    checked = above[:-2]
    return StepLaw(
        floor_bytes=floor_bytes,
        fixed_bytes=fixed,
        sample_bytes=slope,
        residual=max(abs(fixed + slope * batch - peak) / peak for batch, peak in checked)
        if checked
        else None,
    )
