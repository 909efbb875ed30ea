"""Interval algebra on integer nanoseconds.

A *set* is a pair of int64 arrays (starts, ends), sorted, disjoint, without empty intervals. All
functions take and return sets unless they say otherwise; nothing here loses a nanosecond.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
IntervalSet: TypeAlias = tuple[Ints, Ints]

EMPTY: IntervalSet = (np.empty(0, np.int64), np.empty(0, np.int64))


def union(starts: Ints, ends: Ints) -> IntervalSet:
    """Any intervals, in any order, overlapping or not -> the set that they cover."""
    keep = ends > starts
    if not keep.all():
        starts, ends = starts[keep], ends[keep]
    if len(starts) == 0:
        return EMPTY
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    first = np.empty(len(starts), bool)
    first[0] = True
    np.greater(starts[1:], reach[:-1], out=first[1:])
    last = np.append(np.flatnonzero(first)[1:] - 1, len(starts) - 1)
    return starts[first], reach[last]


def length(covered: IntervalSet) -> int:
    """Total length in nanoseconds."""
    return int((covered[1] - covered[0]).sum())


def clip(covered: IntervalSet, start: int, end: int) -> IntervalSet:
    """The part inside [start, end]."""
    starts, ends = clip_any(covered[0], covered[1], start, end)
    keep = ends > starts
    return starts[keep], ends[keep]


def clip_any(starts: Ints, ends: Ints, start: int, end: int) -> tuple[Ints, Ints]:
    """Any intervals cut to [start, end]; what lies outside becomes empty, the order stays."""
    starts = np.clip(starts, start, max(start, end))
    return starts, np.maximum(np.clip(ends, start, max(start, end)), starts)


def merge(*sets: IntervalSet) -> IntervalSet:
    """The union of sets."""
    return union(np.concatenate([s for s, _ in sets]), np.concatenate([e for _, e in sets]))


def complement(covered: IntervalSet, start: int, end: int) -> IntervalSet:
    """The part of [start, end] outside the set."""
    starts, ends = clip(covered, start, end)
    gap_starts = np.concatenate(([start], ends)).astype(np.int64)
    gap_ends = np.concatenate((starts, [end])).astype(np.int64)
    keep = gap_ends > gap_starts
    return gap_starts[keep], gap_ends[keep]


def subtract(covered: IntervalSet, other: IntervalSet) -> IntervalSet:
    """The part of the first set outside the second."""
    if len(covered[0]) == 0:
        return EMPTY
    start, end = int(covered[0][0]), int(covered[1][-1])
    return complement(merge(complement(covered, start, end), other), start, end)


def overlaps(covered: IntervalSet, other: IntervalSet) -> tuple[Ints, Ints, Ints]:
    """What both sets have, in order: starts, ends, and the row of the first set that each is in."""
    starts, ends = covered
    first = np.searchsorted(other[1], starts, side="right")
    count = np.maximum(np.searchsorted(other[0], ends, side="left") - first, 0)
    rows = np.repeat(np.arange(len(starts)), count)
    before = np.cumsum(count) - count
    theirs = np.repeat(first - before, count) + np.arange(len(rows))
    return (
        np.maximum(starts[rows], other[0][theirs]),
        np.minimum(ends[rows], other[1][theirs]),
        rows,
    )


def measure(covered: IntervalSet, starts: Ints, ends: Ints) -> Ints:
    """How much of the set lies in each of the given intervals, nanoseconds."""
    if len(starts) == 0:
        return np.zeros(0, np.int64)
    first = np.searchsorted(covered[1], starts.min())
    stop = np.searchsorted(covered[0], ends.max())
    near = covered[0][first:stop], covered[1][first:stop]
    return before(near, ends) - before(near, starts)


def before(covered: IntervalSet, times: Ints) -> Ints:
    """How much of the set lies before each time, nanoseconds."""
    starts, ends = covered
    if len(starts) == 0:
        return np.zeros(len(times), np.int64)
    total = np.concatenate(([0], np.cumsum(ends - starts)))
    index = np.searchsorted(starts, times, side="right")
    overshoot = np.maximum(ends[np.maximum(index - 1, 0)] - times, 0)
    return np.asarray(total[index] - np.where(index > 0, overshoot, 0), np.int64)


def capped_integral(starts: Ints, ends: Ints, weights: Floats) -> float:
    """Integral over time of min(1, sum of the weights of the intervals that hold it).

    Args:
        starts, ends: any intervals, nanoseconds.
        weights: one for each interval, not negative.

    Returns:
        Weight times nanoseconds.
    """
    if len(starts) == 0:
        return 0.0
    weights = np.minimum(weights, 1.0)
    times = np.concatenate((starts, ends))
    order = np.argsort(times, kind="stable")
    level = np.cumsum(np.concatenate((weights, -weights))[order])
    spans = np.diff(times[order])
    return float((np.clip(level[:-1], 0.0, 1.0) * spans).sum())
