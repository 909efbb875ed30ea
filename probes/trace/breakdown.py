"""Exclusive shares: where the time of a window went."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...records import Breakdown
from . import intervals
from . import kineto_names as vocabulary
from .columns import Trace
from .devices import NameFlags
from .intervals import IntervalSet


def breakdowns(
    trace: Trace, flags: NameFlags, inputs: IntervalSet, windows: list[tuple[int, int]]
) -> list[Breakdown]:
    """The breakdown of each window.

    Args:
        trace: columns.
        flags: what the trace's names say.
        inputs: when the script waited for its DataLoader.
        windows: (start, end), nanoseconds as in the trace.
    """
    starts, ends = (np.array(times, np.int64) for times in zip(*windows, strict=True))
    reached = [np.zeros(len(windows), np.int64)]
    covered = intervals.EMPTY
    for layer in _layers(trace, flags, inputs):
        covered = intervals.merge(covered, layer)
        reached.append(intervals.measure(covered, starts, ends))
    reached.append(ends - starts)
    parts = np.diff(np.stack(reached), axis=0) / 1e9
    return [
        Breakdown(
            **dict(zip(Breakdown.__struct_fields__[:-1], column, strict=True)),
            total_s=(end - start) / 1e9,
        )
        for column, (start, end) in zip(parts.T.tolist(), windows, strict=True)
    ]


def mean(parts: list[Breakdown]) -> Breakdown:
    """The mean of breakdowns, part by part."""
    return Breakdown(
        **{
            field: sum(getattr(part, field) for part in parts) / len(parts)
            for field in Breakdown.__struct_fields__
        }
    )


def _layers(trace: Trace, flags: NameFlags, inputs: IntervalSet) -> Iterator[IntervalSet]:
    """What can go on at a moment, in the order of `Breakdown`."""
    gpu = trace.gpu
    kernels = gpu.kind == vocabulary.KERNEL
    communication = kernels & flags.communication[gpu.name]
    for rows in (
        kernels & ~communication,
        communication,
        gpu.kind == vocabulary.MEMCPY,
        gpu.kind == vocabulary.MEMSET,
    ):
        yield intervals.union(gpu.start_ns[rows], gpu.end_ns[rows])
    yield intervals.union(trace.launches.start_ns, trace.launches.end_ns)
    yield inputs
    yield intervals.union(trace.operators.start_ns, trace.operators.end_ns)
