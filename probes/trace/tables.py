"""Tables of operators and kernels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...records import CallTime, KernelTime, OperatorTime
from .columns import Ranges
from .intervals import Floats, Ints, clip_any, length, union

LONG_CALLS = 0.20
"""Share of the window from which on calls of the GPU's API are named."""

_BLOCK = 1 << 15


def self_times(ranges: Ranges) -> Ints:
    """Time of each range that no range nested in it covers, nanoseconds.

    Nesting is per thread. A range that begins inside another and outlasts it is cut at the
    other's end.
    """
    order = np.lexsort((-ranges.end_ns, ranges.start_ns, ranges.thread))
    starts, ends = ranges.start_ns[order], ranges.end_ns[order]
    parents = parents_of(starts, ends, ranges.thread[order])
    nested = np.flatnonzero(parents >= 0)
    outer = parents[nested]
    remaining = ends - starts
    np.subtract.at(remaining, outer, np.minimum(ends[nested], ends[outer]) - starts[nested])
    times = np.empty(len(order), np.int64)
    times[order] = np.maximum(remaining, 0)
    return times


def parents_of(starts: Ints, ends: Ints, threads: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Row of the innermost range around each range, -1 if there is none.

    Rows are sorted by thread, start and falling end. Only a block of them is unpacked at a time:
    a number costs eight times as much memory as an object.
    """
    parents = np.empty(len(starts), np.int32)
    open_ends: list[int] = []
    open_rows: list[int] = []
    current = None
    row = 0
    for block in range(0, len(starts), _BLOCK):
        rows = slice(block, block + _BLOCK)
        indices: list[int] = []
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
            open_ends.append(end)
            open_rows.append(row)
            row += 1
        parents[rows] = indices
    return parents


def operator_table(operators: Ranges, names: tuple[str, ...]) -> tuple[OperatorTime, ...]:
    """CPU operators by self time, the most expensive first; ties by name.

    Args:
        operators: the ranges to count.
        names: texts of the ranges' `name`.
    """
    if len(operators) == 0:
        return ()
    self_ns = np.zeros(len(names), np.int64)
    np.add.at(self_ns, operators.name, self_times(operators))
    calls = np.bincount(operators.name, minlength=len(names))
    rows = sorted(np.flatnonzero(calls).tolist(), key=lambda i: (-int(self_ns[i]), names[i]))
    return tuple(
        OperatorTime(name=names[i], num_calls=int(calls[i]), self_s=int(self_ns[i]) / 1e9)
        for i in rows
    )


def call_table(
    calls: Ranges, names: tuple[str, ...], start_ns: int, end_ns: int
) -> tuple[CallTime, ...]:
    """The calls of the GPU's API inside which the host was for long, the most first; ties by name.

    Args:
        calls: all calls.
        names: texts of the calls' `name`.
        start_ns, end_ns: the window.
    """
    window = end_ns - start_ns
    inside = (calls.end_ns > start_ns) & (calls.start_ns < end_ns)
    name = calls.name[inside]
    starts, ends = clip_any(calls.start_ns[inside], calls.end_ns[inside], start_ns, end_ns)
    total = np.zeros(len(names), np.int64)
    np.add.at(total, name, ends - starts)
    rows = []
    for row in np.flatnonzero(total > LONG_CALLS * window).tolist():
        own = name == row
        share = length(union(starts[own], ends[own])) / window
        if share > LONG_CALLS:
            rows.append(
                CallTime(
                    name=names[row],
                    num_calls=int(own.sum()),
                    share_pct=100 * share,
                    longest_s=int((ends - starts)[own].max()) / 1e9,
                )
            )
    return tuple(sorted(rows, key=lambda call: (-call.share_pct, call.name)))


def kernel_table(
    name: npt.NDArray[np.int32],
    duration: Ints,
    occupancy: Floats,
    names: tuple[str, ...],
) -> tuple[KernelTime, ...]:
    """GPU kernels by total time, the most expensive first; ties by name.

    Args:
        name: of each kernel, its number in `names`.
        duration: of each kernel, nanoseconds.
        occupancy: achieved occupancy of each kernel, percent, NaN if unknown.
        names: texts.
    """
    total = np.zeros(len(names), np.int64)
    np.add.at(total, name, duration)
    calls = np.bincount(name, minlength=len(names))
    known = np.isfinite(occupancy)
    weight = np.bincount(name[known], duration[known], len(names))
    weighted = np.bincount(name[known], duration[known] * occupancy[known], len(names))
    rows = sorted(np.flatnonzero(calls).tolist(), key=lambda i: (-int(total[i]), names[i]))
    return tuple(
        KernelTime(
            name=names[i],
            num_calls=int(calls[i]),
            total_s=int(total[i]) / 1e9,
            occupancy_pct=float(weighted[i] / weight[i]) if weight[i] > 0 else None,
        )
        for i in rows
    )
