"""Profiler steps: which GPU work belongs to which step, and how long a step takes.

The host runs ahead of the GPU, often by whole steps, so the kernels inside a step's host range
may belong to an earlier one. Work is assigned to the step whose host range holds its launch.
"""

from __future__ import annotations

import msgspec
import numpy as np

from . import kineto_names as vocabulary
from .columns import Activities, Ranges, Trace
from .intervals import Ints

UNKNOWN = -(2**63)
"""Stands in place of a time that the trace does not tell."""


class HostSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Steps as the host marked them, in order of their start.

    Attributes:
        names: `ProfilerStep#7`.
        start_ns, end_ns: the host's range.
        gpu_end_ns: end of the last GPU activity that the step launched; `UNKNOWN` if there is none.
        num_launched: GPU activities that the step launched.
    """

    names: tuple[str, ...]
    start_ns: Ints
    end_ns: Ints
    gpu_end_ns: Ints
    num_launched: Ints

    def __len__(self) -> int:
        return len(self.names)

    def select(self, rows: slice) -> HostSteps:
        """The given steps."""
        return HostSteps(
            **{field: getattr(self, field)[rows] for field in self.__struct_fields__},
        )

    @property
    def windows(self) -> list[tuple[int, int]]:
        """Ranges that do not overlap and hold the GPU work: (start, end) of each step.

        A step begins where the one before ended and ends when its GPU work has ended.
        """
        bounds: list[tuple[int, int]] = []
        reach = 0
        for start, end, gpu_end in zip(
            self.start_ns.tolist(), self.end_ns.tolist(), self.gpu_end_ns.tolist(), strict=True
        ):
            begin = max(start, reach) if bounds else start
            reach = max(begin, end, gpu_end)
            bounds.append((begin, reach))
        return bounds

    @property
    def pace_ns(self) -> tuple[float, str]:
        """Mean time from step to step, and what it was measured by.

        GPU end to GPU end is the pace of the training when two or more steps launched GPU work;
        otherwise host start to host start; of a single step its host range.
        """
        known = np.flatnonzero(self.gpu_end_ns > UNKNOWN)
        if len(known) >= 2:
            first, last = int(known[0]), int(known[-1])  # one between them may have no GPU work
            span = int(self.gpu_end_ns[last]) - int(self.gpu_end_ns[first])
            if span > 0:
                return span / (last - first), "GPU end to GPU end"
        if len(self) >= 2:
            span = int(self.start_ns[-1]) - int(self.start_ns[0])
            return span / (len(self) - 1), "host start to host start"
        return float(self.end_ns[0] - self.start_ns[0]), "host range of the only step"


class LaunchCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The API call that launched each activity, the first of several; one row an activity.

    Attributes:
        began_ns, returned_ns: when; `UNKNOWN` where no call is recorded.
        name: number in `Trace.names`; -1 there.
        row: of the call in `Trace.launches`; -1 there.
    """

    began_ns: Ints
    returned_ns: Ints
    name: Ints
    row: Ints

    def select(self, rows: Ints | slice) -> LaunchCalls:
        """The given rows; of a slice it is a view."""
        return LaunchCalls(
            **{field: getattr(self, field)[rows] for field in self.__struct_fields__},
        )


def launch_rows(gpu: Activities, launches: Ranges) -> Ints:
    """The row of the call that launched each activity, the first of several; -1 if unknown."""
    rows = np.flatnonzero(launches.correlation >= 0)
    rows = rows[np.lexsort((launches.start_ns[rows], launches.correlation[rows]))]
    correlation = launches.correlation[rows]
    index = np.searchsorted(correlation, gpu.correlation)
    hit = (index < len(rows)) & (gpu.correlation >= 0)
    hit[hit] = correlation[index[hit]] == gpu.correlation[hit]
    calls = np.full(len(gpu), -1, np.int64)
    calls[hit] = rows[index[hit]]
    return calls


def launch_calls(gpu: Activities, launches: Ranges) -> LaunchCalls:
    """The calls that launched the activities."""
    call = launch_rows(gpu, launches)
    hit = call >= 0
    call = call[hit]
    began, returned = (np.full(len(gpu), UNKNOWN, np.int64) for _ in range(2))
    name, row = (np.full(len(gpu), -1, np.int64) for _ in range(2))
    row[hit] = call
    began[hit], returned[hit] = launches.start_ns[call], launches.end_ns[call]
    name[hit] = launches.name[call]
    return LaunchCalls(began_ns=began, returned_ns=returned, name=name, row=row)


def host_steps(trace: Trace, launched: Ints) -> HostSteps:
    """The steps of the trace.

    Args:
        trace: columns.
        launched: when the launch of each GPU activity began, `UNKNOWN` if it is not known.
    """
    notes = trace.annotations
    step_names = {i for i, name in enumerate(trace.names) if vocabulary.is_step(name)}
    rows = np.flatnonzero(np.isin(notes.name, list(step_names)))
    rows = rows[np.argsort(notes.start_ns[rows], kind="stable")]
    start, end = notes.start_ns[rows], notes.end_ns[rows]
    gpu_end = np.full(len(rows), UNKNOWN, np.int64)
    count = np.zeros(len(rows), np.int64)
    if len(rows) and len(launched):
        step = np.searchsorted(start, launched, side="right") - 1
        inside = (step >= 0) & (launched > UNKNOWN)
        inside[inside] = launched[inside] <= end[step[inside]]
        np.maximum.at(gpu_end, step[inside], trace.gpu.end_ns[inside])
        np.add.at(count, step[inside], 1)
    return HostSteps(
        names=tuple(trace.names[i] for i in notes.name[rows].tolist()),
        start_ns=start,
        end_ns=end,
        gpu_end_ns=gpu_end,
        num_launched=count,
    )
