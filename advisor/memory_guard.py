"""How far the next size may go without running out of memory."""

from __future__ import annotations

from collections.abc import Mapping

from ..records import Memory
from .laws import above_floor

SLOPE_SAFETY = 1.1
"""The last slope is taken this much steeper, for jumps of workspaces and fragmentation."""
GROWTH_CAP = 4.0


def largest_safe(
    memory: Mapping[int, Memory], target_bytes: int, smallest_bad: int | None
) -> int | None:
    """The largest size that can be expected to stay below the target, `None` without readings.

    Guarded secant: next = B + (target - M) / (1.1 x last slope), at most x4. While the peak still
    lies on a floor that the batch does not set, the slope says nothing; then x4 holds if four
    times the peak fits, since a fixed part and a slope can at most grow in proportion.
    """
    peaks = {size: one.peak_bytes for size, one in memory.items()}
    if not peaks:
        return None
    largest = max(peaks)
    left = target_bytes - peaks[largest]
    cap = largest * GROWTH_CAP
    if left <= 0:
        safe = float(largest)
    else:
        points = above_floor(peaks)
        proportional = largest * target_bytes / peaks[largest]
        if len(points) >= 2:
            (b0, m0), (b1, m1) = points[-2:]
            slope = (m1 - m0) / (b1 - b0)
            secant = largest + left / (SLOPE_SAFETY * slope) if slope > 0 else proportional
            safe = min(cap, max(secant, proportional))
        else:
            # On the floor: the slope beyond it is unknown, and may be steep. Half the growth.
            safe = min(cap, max(proportional, largest * 2.0))
    if smallest_bad is not None:
        safe = min(safe, smallest_bad - 1)
    return int(safe)
