"""The critical path of a window: at each moment, the one thing without which it would not end so.

It is walked backwards from the window's end. What an activity of the GPU waited for last is what
comes before it: the host, if the call that launched it had not returned when its stream became
free; else the activity before it on its stream; else, where it began much later than both, the
activity of another stream that ended last. What the host waited for is the GPU, in calls that wait
and where work ended inside them; otherwise it waited for nobody. The trace does not state
dependencies, so the way is inferred from times.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from ...records.anatomy import SpanKind
from .columns import Activities, Ranges
from .gaps import LAUNCH_LATENCY_NS
from .intervals import Ints
from .steps import UNKNOWN, LaunchCalls

ON_HOST = -1
"""In place of an activity: the host was on the way."""
NOBODY = -2
"""Nothing ran that the window's end depends on."""


class Way(NamedTuple):
    """The critical path in order of time; the parts touch, and cover the window.

    Attributes:
        start_ns, end_ns: of each part.
        row: the activity that ran, `ON_HOST` or `NOBODY`.
        waits: what the part waited for where nothing ran, `None` where something did.
    """

    start_ns: Ints
    end_ns: Ints
    row: Ints
    waits: tuple[SpanKind | None, ...]


def critical_way(
    gpu: Activities, calls: LaunchCalls, waiting: Ranges, start_ns: int, end_ns: int
) -> Way:
    """The critical path of a window.

    Args:
        gpu: activities of all devices.
        calls: what launched each.
        waiting: calls in which the host waited for the GPU.
        start_ns, end_ns: the window.
    """
    return _Walk(gpu, calls, waiting, start_ns, end_ns).way()


class _Walk:
    """One way; rows of activities are those of the whole trace."""

    def __init__(
        self, gpu: Activities, calls: LaunchCalls, waiting: Ranges, start: int, end: int
    ) -> None:
        near = (gpu.end_ns > start) & (gpu.start_ns < end) & (gpu.end_ns > gpu.start_ns)
        self.rows = np.flatnonzero(near)
        self.low, self.high = start, end
        self.starts: list[int] = gpu.start_ns[self.rows].tolist()
        self.ends: list[int] = np.minimum(gpu.end_ns[self.rows], end).tolist()
        self.began: list[int] = calls.began_ns[self.rows].tolist()
        self.returned: list[int] = calls.returned_ns[self.rows].tolist()
        self.before = self._before_on_stream(gpu)
        order = np.argsort(np.array(self.ends, np.int64), kind="stable")
        self.by_end: list[int] = order.tolist()
        self.sorted_ends = [self.ends[row] for row in self.by_end]
        inside = (waiting.end_ns > start) & (waiting.start_ns < end)
        order = np.flatnonzero(inside)[np.argsort(waiting.end_ns[inside], kind="stable")]
        self.wait_starts: list[int] = waiting.start_ns[order].tolist()
        self.wait_ends: list[int] = waiting.end_ns[order].tolist()
        self.parts: list[tuple[int, int, int, SpanKind | None]] = []

    def _before_on_stream(self, gpu: Activities) -> list[int]:
        """The activity before each on its stream, -1 where there is none."""
        rows = self.rows
        order = np.lexsort((gpu.start_ns[rows], gpu.stream[rows], gpu.device[rows]))
        stream, device = gpu.stream[rows][order], gpu.device[rows][order]
        same = (stream[1:] == stream[:-1]) & (device[1:] == device[:-1])
        before = np.full(len(rows), -1, np.int64)
        before[order[1:][same]] = order[:-1][same]
        return list(map(int, before))

    def way(self) -> Way:
        now, row = self.high, ON_HOST
        last = self._ended_by(now)
        if last is not None and self.ends[last] >= self.high:
            row = last
        while now > self.low:
            now, row = self._on_host(now) if row == ON_HOST else self._on_gpu(now, row)
            if row == NOBODY:
                break
        self._add(self.low, now, NOBODY, "unknown")
        parts = self.parts[::-1]
        rows = self.rows.tolist()
        return Way(
            np.array([part[0] for part in parts], np.int64),
            np.array([part[1] for part in parts], np.int64),
            np.array([rows[part[2]] if part[2] >= 0 else part[2] for part in parts], np.int64),
            tuple(part[3] for part in parts),
        )

    def _add(self, start: int, end: int, row: int, waits: SpanKind | None = None) -> None:
        start = max(start, self.low)
        if end > start:
            self.parts.append((start, end, row, waits))

    def _ended_by(self, time: int, but: int = -1, after: int = UNKNOWN) -> int | None:
        """The activity that ended last, until a time and after another."""
        at = bisect_right(self.sorted_ends, time) - 1
        while at >= 0 and self.sorted_ends[at] > after:
            if self.by_end[at] != but:
                return self.by_end[at]
            at -= 1
        return None

    def _on_gpu(self, now: int, row: int) -> tuple[int, int]:
        """One activity, and what it waited for: (from when, who)."""
        begin = self.starts[row]
        self._add(begin, now, row)
        if begin <= self.low:
            return self.low, row
        before, returned = self.before[row], self.returned[row]
        free = min(self.ends[before], begin) if before >= 0 else UNKNOWN
        if returned == UNKNOWN:
            other = self._ended_by(begin, but=row)
            if other is None:
                return begin, NOBODY
            self._add(self.ends[other], begin, NOBODY, "unknown")
            return self.ends[other], other
        ready = min(max(free, returned), begin)
        if begin - ready >= LAUNCH_LATENCY_NS:
            other = self._ended_by(begin, but=row, after=ready)
            if other is not None:
                self._add(self.ends[other], begin, NOBODY, "dependency")
                return self.ends[other], other
        kind: SpanKind = "launch_latency" if begin - ready < LAUNCH_LATENCY_NS else "dependency"
        self._add(ready, begin, NOBODY, kind)
        return (ready, before) if before >= 0 and free >= returned else (ready, ON_HOST)

    def _on_host(self, now: int) -> tuple[int, int]:
        """The host, back to where it last waited for the GPU."""
        at = bisect_right(self.wait_ends, now) - 1
        while at >= 0 and self.wait_ends[at] > self.low:
            start, end = self.wait_starts[at], self.wait_ends[at]
            row = self._waited_for(start, end)
            if row is not None:
                self._add(self.ends[row], now, ON_HOST)
                return self.ends[row], row
            at -= 1
        self._add(self.low, now, ON_HOST)
        return self.low, ON_HOST

    def _waited_for(self, start: int, end: int) -> int | None:
        """The activity that ended last inside a call and was launched before it began, or by it."""
        at = bisect_right(self.sorted_ends, end) - 1
        while at >= 0 and self.sorted_ends[at] > max(start, self.low):
            if self.began[self.by_end[at]] <= start:
                return self.by_end[at]
            at -= 1
        return None
