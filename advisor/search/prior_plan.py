"""Which sizes steps on fake tensors are made of, before any size is tried."""

from __future__ import annotations

from collections.abc import Mapping

from ..measured.step_law import GROWTH, SMALLEST, num_above_floor

LINE_SIZES = 3
"""Sizes above the floor that a line is drawn through."""
MAX_FAKE_SIZES = 14


def next_fake_size(
    peaks: Mapping[int, int], own: int, target_bytes: int, top: int, floor_bytes: int = 0
) -> int | None:
    """The size whose steps on fake tensors are made next; `None` when the law is known.

    The smallest shows the floor, the script's own what real steps will show, the larger ones the
    line. Sizes only grow: what a larger step left behind would count for a smaller one.

    Args:
        peaks: so far, by size.
        own: the script's size.
        target_bytes: what a size may take.
        top: no larger size is going to be tried.
        floor_bytes: of the optimizer's step, as far as it is known.
    """
    if not peaks:
        return min(own, SMALLEST)
    last = max(peaks)
    if last < own:
        return own
    if len(peaks) >= MAX_FAKE_SIZES:
        return None
    is_seen = num_above_floor(peaks, floor_bytes) >= LINE_SIZES
    if not is_seen or (peaks[last] < target_bytes and last < top):
        return last * GROWTH
    return None
