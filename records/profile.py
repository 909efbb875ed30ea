"""The profiled window of a trial: where the time of the device went."""

from __future__ import annotations

from typing import Literal

from .base import Record
from .memory import MemoryCurve

TraceFault = Literal["", "nothing recorded", "records missing", "times", "another accelerator"]
"""Why a trace carries no verdict on a GPU: no record of its work, too few of them, times that
cannot be, events that are not understood. Empty where it does."""


class Launcher(Record, frozen=True, kw_only=True):
    """Where calls came from.

    Attributes:
        operator: the innermost operator around them; empty if none was.
        line: the innermost frame that is neither torch's nor of Python's own library, as the
            profiler writes it: `model.py(12): forward`, with the line where the function begins.
            Empty where no stacks were recorded.
        module: the kind of the innermost `nn.Module`, `Linear`. Empty likewise.
        num_modules: how many of that kind.
        backward: the calls belong to the backward pass of what that line did.
        num_calls, total_s: of the calls from there, and their time.
    """

    operator: str = ""
    line: str = ""
    module: str = ""
    num_modules: int = 0
    backward: bool = False
    num_calls: int
    total_s: float


class OperatorTime(Record, frozen=True, kw_only=True):
    """Time of one operator in the profiled window; self time, summed over threads.

    Attributes:
        device_s: time of the GPU's work that it launched itself; `None` where there is none at all.
        callers: where it was called from, the most time first; empty without stacks.
        num_callers: how many places there are.
    """

    name: str
    num_calls: int
    self_s: float
    device_s: float | None = None
    callers: tuple[Launcher, ...] = ()
    num_callers: int = 0


class KernelTime(Record, frozen=True, kw_only=True):
    """Time of one GPU kernel in the profiled window.

    Attributes:
        tensor_cores: whether its name proves that it uses them; empty in records of older versions.
        launchers: what launched it, the most time first.
        num_launchers: how many operators and places there are.
    """

    name: str
    num_calls: int
    total_s: float
    occupancy_pct: float | None = None
    tensor_cores: Literal["yes", "no", "cannot tell", ""] = ""
    launchers: tuple[Launcher, ...] = ()
    num_launchers: int = 0


class IdleShares(Record, frozen=True, kw_only=True):
    """Shares of the window in which nothing ran on the GPU, percent, by cause.

    The causes from `input_pct` to `tail_pct` add up to `total_pct`.

    Attributes:
        input_pct: the host waited for its DataLoader.
        synchronize_pct: the host was inside calls that wait for the device.
        launch_pct: the host was inside calls that launch kernels.
        call_pct: the host was inside other API calls: copies, allocations.
        host_pct: Python and operator dispatch.
        launch_latency_pct: launched, and started within 30 us of that.
        dependency_pct: launched, and started later: it waited for another stream.
        unknown_pct: the launch is not in the trace.
        tail_pct: after the last activity of the window.
        drained_pct: the part that would not be there if the host had not waited for the device
            before; cuts across the causes of the host other than its DataLoader.
    """

    total_pct: float
    input_pct: float
    synchronize_pct: float
    launch_pct: float
    call_pct: float
    host_pct: float
    launch_latency_pct: float
    dependency_pct: float
    unknown_pct: float
    tail_pct: float
    drained_pct: float = 0.0


class CallTime(Record, frozen=True, kw_only=True):
    """Calls of one name of the GPU's API in a window.

    Attributes:
        num_calls: how many began in it or lasted into it.
        share_pct: share of the window in which the host was inside one of them, on any thread.
        longest_s: the longest of them, its part in the window.
    """

    name: str
    num_calls: int
    share_pct: float
    longest_s: float


class LongestGap(Record, frozen=True, kw_only=True):
    """The longest time in which nothing at all ran on a GPU.

    Attributes:
        host_s: the part until the launch call of what ended it had returned.
        ended_by: name of the activity that ended it; empty at the window's end.
        launched_by: name of the call that launched this; empty where it is not in the trace.
    """

    gap_s: float
    host_s: float
    ended_by: str
    launched_by: str


class DeviceShare(Record, frozen=True, kw_only=True):
    """One GPU of several in the profiled window.

    Attributes:
        device: its number in the trace.
        busy_pct: share of the window in which it did anything.
        idle_pct: share in which it did nothing; of a pipeline, its bubble and whatever else
            keeps it waiting.
        dependency_pct: the part of it in which work was queued and waited for another stream or
            device.
    """

    device: int
    busy_pct: float
    idle_pct: float
    dependency_pct: float | None = None


class Copies(Record, frozen=True, kw_only=True):
    """Copies of one direction in a window, `HtoD` for example.

    Attributes:
        total_s: their durations added up.
        num_bytes: `None` where the trace does not state it of all.
    """

    direction: str
    num_copies: int
    total_s: float
    num_bytes: int | None


class Profile(Record, frozen=True, kw_only=True):
    """Figures of the profiled window of one trial. Shares are of the window unless told otherwise;
    those of a GPU's work and idleness are put on the time of a step that nothing profiles.

    Attributes:
        trace: path of the trace, relative to the record's folder.
        num_steps: profiled steps.
        step_s: seconds of one of them; profiling slows the host, so they may be longer than others.
        busy_pct: share of the window in which the device did anything (kernels, copies, sets).
        kernel_pct: share in which a kernel ran.
        compute_pct: share in which a kernel ran that is no communication.
        communication_pct, exposed_communication_pct: communication, and the part of it in which
            nothing was computed.
        exposed_copy_pct: copies and sets while no kernel ran.
        sm_efficiency_pct: estimated, an upper bound (see probes/trace).
        sm_efficiency_computing_pct: the same over the time in which something was computed.
        occupancy_pct: achieved occupancy, duration-weighted over kernels, estimated.
        tensor_core_pct: share of the compute kernels' time in kernels whose name proves tensor
            cores; a lower bound.
        tensor_core_unknown_pct: share of it in kernels whose name cannot tell.
        short_kernel_pct: share of the kernels' time in kernels shorter than 10 us.
        kernels_per_launch: kernels over the calls that launched them; above 1 with CUDA graphs.
        device_wait_pct: share in which the host waited for the device.
        idle: why nothing ran on the GPU.
        longest_gap: the longest time in which nothing ran on it.
        calls: calls of the GPU's API that take more than a fifth of the window, the most first.
        trains: whether something of the trace belongs to a backward pass or an optimizer; `None`
            where it holds no operators that would show it.
        copies: by direction.
        left_out: what of the trace does not count, because it cannot have been, a clause each.
        fault, unrecorded: why the trace carries no verdict on a device that the script surely used,
            as a kind and in words; empty if it does.
        operators_pct: share of the window in which the CPU was inside an operator.
        input_wait_pct: share of the window in which the script waited for its DataLoader.
        operators, kernels: the most expensive ones first.
        operators_s, num_operators: self time of all operators, and how many there are;
            `None` in records of older versions.
        kernels_s, num_kernels: the same of all kernels; they may run at once, so that their sum may
            exceed the window.
        stacks: whether the trace holds Python's stacks.
        losses: what of the trace could not be read; empty if nothing.
        devices: each GPU, where several worked in one process; the other figures are those of
            the busiest.
        memory: of each device over the median step, where allocations were recorded.
    """

    trace: str | None = None
    num_steps: int = 0
    step_s: float | None = None
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
    short_kernel_pct: float | None = None
    kernels_per_launch: float | None = None
    device_wait_pct: float | None = None
    idle: IdleShares | None = None
    longest_gap: LongestGap | None = None
    calls: tuple[CallTime, ...] = ()
    trains: bool | None = None
    copies: tuple[Copies, ...] = ()
    left_out: tuple[str, ...] = ()
    fault: TraceFault = ""
    unrecorded: str = ""
    operators_pct: float | None = None
    input_wait_pct: float | None = None
    losses: str = ""
    operators: tuple[OperatorTime, ...] = ()
    kernels: tuple[KernelTime, ...] = ()
    operators_s: float | None = None
    num_operators: int | None = None
    kernels_s: float | None = None
    num_kernels: int | None = None
    stacks: bool = False
    devices: tuple[DeviceShare, ...] = ()
    memory: tuple[MemoryCurve, ...] = ()
    unavailable: dict[str, str] = {}
