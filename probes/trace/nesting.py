"""Ranges inside ranges: what was open on a thread, and what each range spent by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .columns import BackwardLinks, Ranges
from .intervals import Ints

_BLOCK = 1 << 15


class Nesting:
    """The ranges of all threads as trees. Where a range begins inside another and outlasts it, only
    what lies inside counts as nested.

    Attributes:
        order: the rows of the ranges, by thread, start and falling end; a position counts in it.
        parents: position of the innermost range around each position, -1 if there is none.
        ends: where each position ends, cut at its parent's end.
    """

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self.order = np.lexsort((-ranges.end_ns, ranges.start_ns, ranges.thread))
        self.starts, self.threads = ranges.start_ns[self.order], ranges.thread[self.order]
        self.ends = ranges.end_ns[self.order]
        self.parents, self.ends = _parents_and_ends(self.starts, self.ends, self.threads)

    def self_times(self) -> Ints:
        """Time of each range, in their rows, that no range nested in it covers, nanoseconds."""
        nested = np.flatnonzero(self.parents >= 0)
        outer = self.parents[nested]
        remaining = self.ranges.end_ns[self.order] - self.starts
        np.subtract.at(remaining, outer, self.ends[nested] - self.starts[nested])
        times = np.empty(len(self.order), np.int64)
        times[self.order] = np.maximum(remaining, 0)
        return times

    def innermost(self, threads: npt.NDArray[np.int32], times: Ints) -> npt.NDArray[np.int64]:
        """Position of the innermost range that is open on a thread at a time, -1 if none is.

        Args:
            threads, times: one question each.
        """
        found = np.full(len(times), -1, np.int64)
        asked_of = np.unique(threads)
        bounds = np.searchsorted(self.threads, asked_of)
        stops = np.searchsorted(self.threads, asked_of, side="right")
        for thread, first, stop in zip(
            asked_of.tolist(), bounds.tolist(), stops.tolist(), strict=True
        ):
            asked = threads == thread
            last = np.searchsorted(self.starts[first:stop], times[asked], side="right") - 1
            found[asked] = np.where(last >= 0, last + first, -1)
        while True:
            over = np.flatnonzero(found >= 0)
            over = over[self.ends[found[over]] <= times[over]]
            if len(over) == 0:
                return found
            found[over] = self.parents[found[over]]

    def nearest(self, values: npt.NDArray[Any], positions: npt.NDArray[Any]) -> Ints:
        """For each given position (-1: none), the value of the innermost range at or around it that
        has one; -1 if none has.

        Args:
            values: of each position; below 0 where it has none.
        """
        found = np.full(len(positions), -1, np.int64)
        at = positions.astype(np.int64)
        while True:  # each round looks one range further out
            missing = np.flatnonzero((at >= 0) & (found < 0))
            if len(missing) == 0:
                return found
            found[missing] = values[at[missing]]
            at[missing] = self.parents[at[missing]]

    def forward(self, links: BackwardLinks) -> Ints:
        """For each position of the backward pass, that of its forward operator; -1 of others."""
        forward = np.full(len(self.order), -1, np.int64)
        part = self.innermost(links.backward_thread, links.backward_ns)
        source = self.innermost(links.forward_thread, links.forward_ns)
        known = (part >= 0) & (source >= 0)
        forward[part[known]] = source[known]
        return forward


def _parents_and_ends(
    starts: Ints, ends: Ints, threads: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], Ints]:
    """Position of the innermost range around each range, -1 if there is none; ends that nest.

    Ranges are sorted by thread, start and falling end. Only a block of them is unpacked at a time:
    a number costs eight times as much memory as an object.
    """
    parents, cut = np.empty(len(starts), np.int32), np.empty(len(starts), np.int64)
    open_ends: list[int] = []
    open_rows: list[int] = []
    current = None
    row = 0
    for block in range(0, len(starts), _BLOCK):
        rows = slice(block, block + _BLOCK)
        indices: list[int] = []
        reached: list[int] = []
        for thread, start, end in zip(
            threads[rows].tolist(), starts[rows].tolist(), ends[rows].tolist(), strict=True
        ):
            if thread != current:
                current = thread
                open_ends.clear()
                open_rows.clear()
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
                open_rows.pop()
            indices.append(open_rows[-1] if open_rows else -1)
            reached.append(min(end, open_ends[-1]) if open_ends else end)
            open_ends.append(reached[-1])
            open_rows.append(row)
            row += 1
        parents[rows], cut[rows] = indices, reached
    return parents, cut
