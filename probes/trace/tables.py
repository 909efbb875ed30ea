"""Tables of operators and kernels."""

from __future__ import annotations

import numpy as np

from ...records import KernelTime, OperatorTime
from .columns import Activities, Ranges
from .intervals import Floats, Ints


def self_times(ranges: Ranges) -> Ints:
    """Time of each range that no range nested in it covers, nanoseconds.

    Nesting is per thread. A range that begins inside another and outlasts it is cut at the
    other's end.
    """
    order = np.lexsort((-ranges.end_ns, ranges.start_ns, ranges.thread))
    starts = ranges.start_ns[order].tolist()
    ends = ranges.end_ns[order].tolist()
    threads = ranges.thread[order].tolist()
    remaining = (ranges.end_ns - ranges.start_ns)[order].tolist()
    open_ends: list[int] = []
    open_rows: list[int] = []
    current = None
    for row, (thread, start, end) in enumerate(zip(threads, starts, ends, strict=True)):
        if thread != current:
            current = thread
            open_ends.clear()
            open_rows.clear()
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
            open_rows.pop()
        if open_ends:
            remaining[open_rows[-1]] -= min(end, open_ends[-1]) - start
        open_ends.append(end)
        open_rows.append(row)
    found = np.empty(len(order), np.int64)
    found[order] = remaining
    return np.maximum(found, 0)


def operator_table(
    operators: Ranges, names: tuple[str, ...], limit: int | None = None
) -> tuple[OperatorTime, ...]:
    """CPU operators by self time, the most expensive first; ties by name.

    Args:
        operators: the ranges to count.
        names: texts of the ranges' `name`.
        limit: rows of the table.
    """
    if len(operators) == 0:
        return ()
    self_ns = np.zeros(len(names), np.int64)
    np.add.at(self_ns, operators.name, self_times(operators))
    calls = np.bincount(operators.name, minlength=len(names))
    rows = sorted(np.flatnonzero(calls).tolist(), key=lambda i: (-int(self_ns[i]), names[i]))
    return tuple(
        OperatorTime(name=names[i], num_calls=int(calls[i]), self_s=int(self_ns[i]) / 1e9)
        for i in rows[:limit]
    )


def kernel_table(
    kernels: Activities, occupancy: Floats, names: tuple[str, ...], limit: int | None = None
) -> tuple[KernelTime, ...]:
    """GPU kernels by total time, the most expensive first; ties by name.

    Args:
        kernels: the kernels to count.
        occupancy: achieved occupancy of each, percent, NaN if unknown.
        names: texts of the kernels' `name`.
        limit: rows of the table.
    """
    if len(kernels) == 0:
        return ()
    duration = kernels.end_ns - kernels.start_ns
    total = np.zeros(len(names), np.int64)
    np.add.at(total, kernels.name, duration)
    calls = np.bincount(kernels.name, minlength=len(names))
    known = np.isfinite(occupancy)
    weight = np.bincount(kernels.name[known], duration[known], len(names))
    weighted = np.bincount(kernels.name[known], duration[known] * occupancy[known], len(names))
    rows = sorted(np.flatnonzero(calls).tolist(), key=lambda i: (-int(total[i]), names[i]))
    return tuple(
        KernelTime(
            name=names[i],
            num_calls=int(calls[i]),
            total_s=int(total[i]) / 1e9,
            occupancy_pct=float(weighted[i] / weight[i]) if weight[i] > 0 else None,
        )
        for i in rows[:limit]
    )
