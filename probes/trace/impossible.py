"""When work on a GPU ended at the latest, by what came after it; profilers may write other ends."""

from __future__ import annotations

import numpy as np

from . import kineto_names as vocabulary
from .columns import Activities, Trace
from .intervals import Ints
from .steps import UNKNOWN, launch_calls

CLOCKS_NS = 1_000_000
"""Clocks of host and device may differ by so much."""
MANY = 100
"""From so many events on, the last one is not believed if it outlasts all the rest of the trace."""
_LAST = 2**62


def ends_in_order(trace: Trace) -> Ints:
    """A stream runs in order: an event that outlasts a later one ended where the next began.

    A kernel may begin before its neighbour has ended on newer GPUs, and is not measured so exactly
    that it could not seem to end first; the one after that waits for both.
    """
    gpu = trace.gpu
    ends: Ints = gpu.end_ns.copy()
    for rows in _streams(gpu):
        start, end = gpu.start_ns[rows], gpu.end_ns[rows]
        lasting = end > start  # copies below the clock's resolution have no length of their own
        first = np.minimum.accumulate(np.where(lasting, end, _LAST)[::-1])[::-1]
        beyond = np.append(first[2:], _LAST)
        wrong = np.flatnonzero((end[:-1] > beyond) | (end[:-1] > first[1:] + CLOCKS_NS))
        following = np.searchsorted(start, start[wrong], side="right")
        cut = start[np.minimum(following, len(start) - 1)]
        ends[rows[wrong]] = np.maximum(cut, start[wrong])
    return ends


def _streams(gpu: Activities) -> list[Ints]:
    """Rows of each stream, sorted by start; what states no stream is nobody's."""
    order = np.lexsort((gpu.end_ns, gpu.start_ns, gpu.stream, gpu.device))
    order = order[gpu.stream[order] >= 0]
    device, stream = gpu.device[order], gpu.stream[order]
    bounds = np.flatnonzero((device[1:] != device[:-1]) | (stream[1:] != stream[:-1])) + 1
    return [rows for rows in np.split(order, bounds) if len(rows) > 1]


def ends_before_waits(trace: Trace) -> Ints:
    """A call that waits for the device comes back when all has ended that was launched before."""
    gpu, calls = trace.gpu, trace.launches
    names = np.array([vocabulary.waits_for_device(name) for name in trace.names], bool)
    waits = np.flatnonzero(names[calls.name])
    # Of several devices it waits for one, and it is not said for which.
    if len(waits) == 0 or len(np.unique(gpu.device)) != 1:
        return gpu.end_ns
    waits = waits[np.argsort(calls.start_ns[waits], kind="stable")]
    began = launch_calls(gpu, calls).began_ns
    given = np.where(began > UNKNOWN, began, gpu.start_ns)
    after = np.searchsorted(calls.start_ns[waits], given)
    limit = np.full(len(gpu), _LAST, np.int64)
    known = after < len(waits)
    limit[known] = calls.end_ns[waits[after[known]]]
    wrong = gpu.end_ns > limit + CLOCKS_NS
    return np.where(wrong, np.maximum(limit, gpu.start_ns), gpu.end_ns)


def ends_with_the_rest(trace: Trace) -> Ints:
    """The last event does not go on, after all else has ended, for longer than all else took."""
    gpu = trace.gpu
    if len(gpu) < MANY:
        return gpu.end_ns
    row = int(np.argmax(gpu.end_ns))
    others = np.arange(len(gpu)) != row
    hosts = (trace.launches, trace.operators, trace.annotations)
    ends = [gpu.end_ns[others], *(group.end_ns for group in hosts)]
    starts = [gpu.start_ns, *(group.start_ns for group in hosts)]
    last = max(int(times.max()) for times in ends if len(times))
    first = min(int(times.min()) for times in starts if len(times))
    cut: Ints = gpu.end_ns.copy()
    if int(cut[row]) - last > last - first:
        cut[row] = max(last, int(gpu.start_ns[row]))
    return cut
