"""How far the next size may go without running out of memory."""

from __future__ import annotations

from collections.abc import Mapping

from ...records import Memory
from .laws import last_slope, slopes_agree
from .measurements import Measurements
from .refused import not_of_the_size

SLOPE_SAFETY = 1.1
"""The last slope is taken this much steeper, for jumps of workspaces and fragmentation."""
LEAST_STEP = 1.1
"""A size larger by no more tells nothing new."""
GROWTH_CAP = 4.0
TRUSTED_CAP = 16.0
"""The growth allowed once two successive slopes agree."""


def room_ends(measurements: Measurements) -> int | None:
    """The largest size that memory leaves room for, as far as that is known."""
    device, trials = measurements.record.device, measurements.record.trials
    refused = [
        trial.batch_size
        for trial in trials
        if trial.outcome == "out_of_memory" and not not_of_the_size(trial, device)
    ]
    target = measurements.target_bytes
    safe = None if target is None else largest_safe(measurements.trusted_memory, target, None)
    return min([*(size - 1 for size in refused), *([] if safe is None else [safe])], default=None)


def largest_safe(
    memory: Mapping[int, Memory], target_bytes: int, smallest_bad: int | None
) -> int | None:
    """The largest size that can be expected to stay below the target, `None` without readings.

    Guarded secant: next = B + (target - M) / (1.1 x last slope), at most x4, or x16 where two
    slopes agree. B is the largest size within the target; one above the target bounds the next and
    lends its slope. While the peak still lies on a floor that the batch does not set, the slope
    says nothing; then the size is doubled, or grown as far as the peak would fit if it grew in
    proportion.
    """
    peaks = {size: reading.peak_bytes for size, reading in memory.items()}
    if not peaks:
        return None
    within = [size for size, peak in peaks.items() if peak <= target_bytes]
    largest = max(within, default=min(peaks) - 1)
    over = min((size for size in peaks if size > largest), default=None)
    peaks = {size: peak for size, peak in peaks.items() if over is None or size <= over}
    left = target_bytes - peaks.get(largest, target_bytes)
    if left <= 0:
        safe = float(largest)
    else:
        # Always safe: a fixed part and a slope grow at most in proportion.
        proportional = largest * target_bytes / peaks[largest]
        slope = last_slope(peaks)
        cap = largest * (TRUSTED_CAP if slopes_agree(peaks) else GROWTH_CAP)
        if slope is not None:
            safe = min(cap, max(largest + left / (SLOPE_SAFETY * slope), proportional))
        else:
            # On the floor: the slope beyond it is unknown, and may be steep.
            safe = min(cap, max(proportional, largest * 2.0))
    return min([int(safe), *(bound - 1 for bound in (over, smallest_bad) if bound is not None)])
