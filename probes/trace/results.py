"""What an analysed trace says.

Seconds, percent and counts; `None` is what the trace cannot tell, and `unavailable` says why.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ...records import (
    Breakdown,
    CallTime,
    Copies,
    IdleShares,
    KernelTime,
    LongestGap,
    OperatorTime,
    Record,
    TraceFault,
)
from .columns import Losses

WindowSource = Literal["steps", "GPU span", "operators", "calls", "none"]


class DeviceMetrics(Record, frozen=True, kw_only=True):
    """One GPU in one window. Shares are of the window unless they say otherwise.

    Attributes:
        device: its number in the trace.
        busy_pct: anything ran: kernels, copies, sets.
        kernel_pct: a kernel ran, communication included.
        compute_pct: a kernel that is no communication ran.
        communication_pct: a communication kernel ran.
        exposed_communication_pct: one ran, and nothing was computed.
        exposed_copy_pct: copies or sets ran, and no kernel.
        sm_efficiency_pct: integral of min(1, sum of blocks per multiprocessor of what runs); an
            upper bound of the share of busy multiprocessors, idle time counts as 0.
        sm_efficiency_computing_pct: the same of compute kernels, over the time in which these ran.
        occupancy_pct: achieved occupancy of compute kernels, weighted by duration; recomputed
            where Kineto's value is missing or its false 0.
        tensor_core_pct: share of compute kernel time in kernels whose name proves tensor cores;
            a lower bound.
        tensor_core_unknown_pct: share of it in kernels whose name cannot tell.
        num_kernels: in the window.
        num_launches: calls that launched them; fewer with CUDA graphs.
        short_kernel_pct: share of their durations in kernels shorter than 10 us.
        copies: by direction.
        idle: nothing ran, by cause.
        longest_gap: the longest such time; `None` if there was none.
    """

    device: int
    name: str
    busy_pct: float | None = None
    kernel_pct: float | None = None
    compute_pct: float | None = None
    communication_pct: float | None = None
    exposed_communication_pct: float | None = None
    exposed_copy_pct: float | None = None
    sm_efficiency_pct: float | None = None
    sm_efficiency_computing_pct: float | None = None
    occupancy_pct: float | None = None
    tensor_core_pct: float | None = None
    tensor_core_unknown_pct: float | None = None
    num_kernels: int = 0
    num_launches: int | None = None
    short_kernel_pct: float | None = None
    copies: tuple[Copies, ...] = ()
    idle: IdleShares | None = None
    longest_gap: LongestGap | None = None
    unavailable: dict[str, str] = msgspec.field(default_factory=dict)


class StepMetrics(Record, frozen=True, kw_only=True):
    """One profiler step.

    Attributes:
        name: as the profiler named it.
        host_s: the host's range of the step.
        window_s: the range that holds the step's GPU work too; windows do not overlap.
        breakdown: where the time of the window went.
        devices: GPUs that worked in the window.
    """

    name: str
    host_s: float
    window_s: float
    breakdown: Breakdown
    devices: tuple[DeviceMetrics, ...] = ()


class TraceMetrics(Record, frozen=True, kw_only=True):
    """All that a trace says of the profiled window.

    Attributes:
        window_s: length of the window; from the first step's start, or the end of the GPU work of
            older steps, to the last step's end, GPU work included. Without steps, from the first
            GPU activity to the last.
        window_source: which of these it is.
        step_s: mean time from step to step.
        step_source: how that was measured.
        steps: profiler steps.
        breakdown: mean over the steps, or of the whole window if there are none.
        devices: GPUs that worked in the window.
        operators: CPU operators by self time, the most expensive first.
        kernels: GPU kernels by total time, all devices, the most expensive first.
        operators_pct: share of the window in which any thread was inside an operator.
        input_wait_pct: share of the window in which the script waited for its DataLoader.
        input_wait_s: that time.
        device_wait_s: time in the window in calls that wait for the device, and in copies that came
            back only when they were done.
        rank, world_size: as the trace states them.
        calls: calls of the GPU's API that take more than a fifth of the window, the most first.
        trains: whether a backward pass or an optimizer is in the trace; `None` where nothing in it
            would show them.
        left_out: what of the trace does not count, a clause each.
        fault, unrecorded: why the trace carries no verdict on a device that the script surely used,
            as a kind and in words; empty if it does.
        stacks: whether the trace holds Python's stacks.
        losses: what could not be read of the file.
    """

    window_s: float
    window_source: WindowSource
    step_s: float | None = None
    step_source: str = ""
    steps: tuple[StepMetrics, ...] = ()
    breakdown: Breakdown | None = None
    devices: tuple[DeviceMetrics, ...] = ()
    operators: tuple[OperatorTime, ...] = ()
    kernels: tuple[KernelTime, ...] = ()
    operators_pct: float | None = None
    input_wait_pct: float | None = None
    input_wait_s: float | None = None
    device_wait_s: float | None = None
    rank: int | None = None
    world_size: int | None = None
    calls: tuple[CallTime, ...] = ()
    trains: bool | None = None
    left_out: tuple[str, ...] = ()
    fault: TraceFault = ""
    unrecorded: str = ""
    stacks: bool = False
    losses: Losses = Losses()
    unavailable: dict[str, str] = msgspec.field(default_factory=dict)
