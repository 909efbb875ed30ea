"""Why a GPU stood still.

A gap is a time in which nothing at all ran on the device, over all its streams. The activity that
ends the gap tells the cause: when its launch began after the gap did, the host was late; when it
was launched before, it waited for the device or for what it depends on.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from ...records import Record
from .columns import Activities, Ranges
from .events import MEMCPY
from .intervals import EMPTY, IntervalSet, Ints, complement, measure, merge, subtract, union
from .steps import UNKNOWN

LAUNCH_LATENCY_NS = 30_000
"""A queued activity that starts within this time after the one before it waited for nothing but
its own start on the device."""


class Idle(Record, frozen=True, kw_only=True):
    """Idle time of one device in a window, seconds, by cause; the causes add up to `total_s`.

    Attributes:
        total_s: nothing ran on the device.
        num_gaps: how many separate times.
        host_s: the host had not launched the next activity yet.
        launch_latency_s: launched in time, started within 30 us.
        dependency_s: launched in time, started later: it waited for another stream or event.
        unknown_s: the launch is not in the trace (it began before profiling did).
        tail_s: after the last activity of the window.
        host_input_s: the part of `host_s` in which the script waited for its DataLoader.
        host_synchronize_s: ... in which the host waited for the device.
        host_launch_s: ... in which the host was inside calls that launch kernels.
        host_call_s: ... in which the host was inside other API calls: copies, allocations.
        host_other_s: the rest of `host_s`: Python and operator dispatch.
        host_drained_s: the part of `host_s` in gaps that began while the host waited for the
            device: nothing was queued any more. It cuts across the parts above.
    """

    total_s: float
    num_gaps: int
    host_s: float
    launch_latency_s: float
    dependency_s: float
    unknown_s: float
    tail_s: float
    host_input_s: float
    host_synchronize_s: float
    host_launch_s: float
    host_call_s: float
    host_other_s: float
    host_drained_s: float = 0.0


Causes: TypeAlias = tuple[IntervalSet, ...]
"""What the host did, in the order of `HostCalls`; no two at the same time."""


class HostCalls(msgspec.Struct, frozen=True, kw_only=True):
    """What the host did, as sets of intervals.

    Attributes:
        inputs: waiting for the DataLoader.
        synchronize: API calls that wait for the device.
        launches: API calls that launch kernels.
        calls: all API calls.
    """

    inputs: IntervalSet
    synchronize: IntervalSet
    launches: IntervalSet
    calls: IntervalSet

    def exclusive(self) -> Causes:
        """The sets without what those before them have."""
        found: list[IntervalSet] = []
        before = EMPTY
        for covered in (self.inputs, self.synchronize, self.launches, self.calls):
            found.append(subtract(covered, before))
            before = merge(before, covered)
        return tuple(found)


def idle_time(
    activities: Activities,
    launched: Ints,
    host: Causes,
    start_ns: int,
    end_ns: int,
    *,
    waits: IntervalSet = EMPTY,
) -> Idle:
    """Idle time of one device in [start_ns, end_ns].

    Args:
        activities: of the device, sorted by start.
        launched: when the launch of each began, `UNKNOWN` if it is not known.
        host: what the host did, `HostCalls.exclusive`.
        start_ns, end_ns: the window.
        waits: when the host waited for the device, copies that block included.
    """
    busy = union(activities.start_ns, activities.end_ns)
    gap_start, gap_end = complement(busy, start_ns, end_ns)
    next_one = np.searchsorted(activities.start_ns, gap_end)
    tail = gap_end >= end_ns
    ended = ~tail & (next_one < len(activities))
    launch = np.full(len(gap_start), UNKNOWN, np.int64)
    launch[ended] = launched[next_one[ended]]
    sizes = gap_end - gap_start
    known = ended & (launch > UNKNOWN)
    late = known & (launch > gap_start)
    queued = known & ~late
    quick = queued & (sizes < LAUNCH_LATENCY_NS)
    late_gaps = (gap_start[late], gap_end[late])

    def seconds(rows: npt.NDArray[np.bool_]) -> float:
        return int(sizes[rows].sum()) / 1e9

    inputs, synchronize, launches, calls = (
        int(measure(covered, *late_gaps).sum()) / 1e9 for covered in host
    )
    host_s = seconds(late)
    return Idle(
        total_s=int(sizes.sum()) / 1e9,
        num_gaps=len(sizes),
        host_s=host_s,
        launch_latency_s=seconds(quick),
        dependency_s=seconds(queued & ~quick),
        unknown_s=seconds(~known & ~tail),
        tail_s=seconds(tail),
        host_input_s=inputs,
        host_synchronize_s=synchronize,
        host_launch_s=launches,
        host_call_s=calls,
        host_other_s=max(host_s - inputs - synchronize - launches - calls, 0.0),
        host_drained_s=seconds(late & _contains(waits, gap_start)),
    )


def blocking_calls(activities: Activities, launches: Ranges) -> npt.NDArray[np.bool_]:
    """Which API calls came back only after the copy that they launched had ended.

    `.item()` and copies from memory that is not pinned do so, whatever their call is named.
    """
    copies = (activities.kind == MEMCPY) & (activities.correlation >= 0)
    order = np.lexsort((activities.end_ns[copies], activities.correlation[copies]))
    correlation = activities.correlation[copies][order]
    ends = activities.end_ns[copies][order]
    found = np.zeros(len(launches), bool)
    if len(correlation) == 0 or len(launches) == 0:
        return found
    last = np.searchsorted(correlation, launches.correlation, side="right") - 1  # a graph's copies
    index = np.maximum(last, 0)
    found[:] = (correlation[index] == launches.correlation) & (launches.end_ns >= ends[index])
    return found


def _contains(covered: IntervalSet, times: Ints) -> npt.NDArray[np.bool_]:
    """Which of the times lie in the set."""
    starts, ends = covered
    if len(starts) == 0:
        return np.zeros(len(times), bool)
    index = np.searchsorted(starts, times, side="right") - 1
    return (index >= 0) & (times <= ends[np.maximum(index, 0)])
