"""How far the next size may go without running out of memory."""

from __future__ import annotations

from collections.abc import Mapping

from ..records import Memory
from .laws import last_slope, slopes_agree

SLOPE_SAFETY = 1.1
"""The last slope is taken this much steeper, for jumps of workspaces and fragmentation."""
GROWTH_CAP = 4.0
TRUSTED_CAP = 16.0
"""The growth allowed once two successive slopes agree."""


def largest_safe(
    memory: Mapping[int, Memory], target_bytes: int, smallest_bad: int | None
) -> int | None:
    """The largest size that can be expected to stay below the target, `None` without readings.

    Guarded secant: next = B + (target - M) / (1.1 x last slope), at most x4, or x16 where two
    slopes agree. While the peak still
    lies on a floor that the batch does not set, the slope says nothing; then the size is doubled,
    or grown as far as the peak would fit if it grew in proportion.
    """
    peaks = {size: one.peak_bytes for size, one in memory.items()}
    if not peaks:
        return None
    largest = max(peaks)
    left = target_bytes - peaks[largest]
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
    if smallest_bad is not None:
        safe = min(safe, smallest_bad - 1)
    return int(safe)
