"""Room for larger micro-batches beside a size that a callback saw: an estimate with its basis."""

from __future__ import annotations

from typing import NamedTuple

from ...records import (
    Memory,
    Observed,
)
from ...units import format_bytes
from ..measured.measurements import Measurements

NOISE_BYTES, NOISE_SHARE = 32 * 2**20, 0.02
"""Peaks of a process or of an allocator's segments differ by so much on their own."""
FARTHEST = 64
"""A line through sizes that ran says nothing of a size so many times as large."""


class Headroom(NamedTuple):
    """Room for larger micro-batches, an estimate.

    Attributes:
        samples: that fit beside those of the size that ran, within capacity less margin.
        basis: what the estimate rests on.
        is_number: whether it is one to be told; else it bounds what to try and no more.
    """

    samples: int
    basis: str
    is_number: bool = True


def headroom(measurements: Measurements, size: int) -> Headroom | str:
    """Samples that still fit beside `size`, or why that is not known."""
    room = _headroom(measurements, size)
    if isinstance(room, str):
        return room
    refused = [
        failure.batch_size for failure in measurements.failed if failure.outcome == "out_of_memory"
    ]
    if refused and size + room.samples >= min(refused):
        below = max(0, min(refused) - 1 - size)
        return Headroom(below, f"memory was refused at {min(refused)}")
    return room


def _headroom(measurements: Measurements, size: int) -> Headroom | str:
    target = measurements.target_bytes
    memory = measurements.trusted_memory
    here = memory.get(size)
    if target is None or here is None:
        return "the device's memory or its peak is not known"
    left = target - here.peak_bytes
    if left <= 0:
        return f"the peak is above {format_bytes(target)} already"
    by_held = _by_held(measurements.record.observed, here, size, left)
    proportional = int(size * left / here.peak_bytes)
    other = sorted(
        (neighbour for neighbour in memory if neighbour != size),
        key=lambda neighbour: abs(neighbour - size),
    )
    if other:
        for nearest in other:
            rise = (here.peak_bytes - memory[nearest].peak_bytes) * (1 if nearest < size else -1)
            if rise >= max(NOISE_BYTES, NOISE_SHARE * here.peak_bytes):
                samples = int(left * abs(size - nearest) / rise)
                low, high = sorted((nearest, size))
                basis = f"a line through the sizes {low} and {high}"
                if samples <= FARTHEST * size:
                    return Headroom(samples, basis)
                basis = f"more than {FARTHEST} times this size, by {basis}"
                return Headroom(samples, basis, is_number=False)
        sizes = f"{min(*other, size)} and {max(*other, size)}"
        basis = f"the peak hardly differs between the sizes {sizes}"
        return Headroom(by_held.samples if by_held else proportional, basis, is_number=False)
    if by_held is not None:
        return by_held
    device = measurements.record.device
    if device is not None and device.kind == "cpu":
        basis = "at least, if memory grows in proportion to the batch at most; one size was seen"
    else:
        basis = "at least, if memory grows in proportion to the batch; one size was seen"
    return Headroom(proportional, basis)


def _by_held(
    observed: Observed | None, memory: Memory, size: int, left_bytes: int
) -> Headroom | None:
    """What lies between the steps does not grow with the batch, what is freed does."""
    held = observed.held_bytes if observed is not None else None
    if held is None or memory.allocated_bytes is None or memory.allocated_bytes <= held:
        return None
    slope = (memory.allocated_bytes - held) / size
    basis = f"{format_bytes(held)} stay allocated between steps and the rest grows with the batch"
    return Headroom(int(left_bytes / slope), f"if {basis}; one size was seen")
