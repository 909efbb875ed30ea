"""Peak memory of a trial."""

from __future__ import annotations

from .base import Record


class DeviceMemory(Record, frozen=True, kw_only=True):
    """Peak memory on one of several devices that hold parts of a model.

    Attributes:
        device: as torch names it.
        capacity_bytes: what the script can have of it.
    """

    device: str
    peak_bytes: int
    capacity_bytes: int


class MemoryCurve(Record, frozen=True, kw_only=True):
    """Memory of one device over one step, as `torch.profiler` recorded it (`profile_memory=True`).

    An item of each tuple is a moment: what holds from then on. Thinned, where there are many, so
    that the least and the most of every piece of the step are kept.

    Attributes:
        device: number of the GPU in the trace; `None` is the host's memory.
        step: name of the profiler step; empty of the whole recording.
        step_ns: length of the step on the host, which allocates ahead of the GPU.
        time_ns: moments, from the start of the step.
        allocated_bytes: bytes in tensors; `relative`: more than as the recording began.
        reserved_bytes: what the allocator had taken of the device, `None` where it is unknown;
            empty where nothing is known.
        num_events: allocations and frees in the step.
        peak_bytes, peak_ns: the most that was allocated, and when that was first so.
        peak_operator: the innermost operator in which it was; empty outside of any.
        peak_within: the outermost operator around that one; empty without one.
        peak_reserved_bytes: the most that was reserved.
        relative: the trace states changes only (torch 1.8 and 1.9).
        notes: what is missing, a clause each.
    """

    device: int | None
    step: str
    step_ns: int
    time_ns: tuple[int, ...]
    allocated_bytes: tuple[int, ...]
    reserved_bytes: tuple[int | None, ...] = ()
    num_events: int
    peak_bytes: int
    peak_ns: int
    peak_operator: str = ""
    peak_within: str = ""
    peak_reserved_bytes: int | None = None
    relative: bool = False
    notes: tuple[str, ...] = ()


class Memory(Record, frozen=True, kw_only=True):
    """Peak memory of one trial, caches emptied and peaks reset before it.

    Attributes:
        peak_bytes: the figure that laws and limits use; `peak_source` says what it is.
        allocated_bytes, reserved_bytes: peaks of torch's allocator; `None` on a CPU.
        process_bytes: this process as the driver (GPU) or the kernel (CPU) sees it.
        device_used_bytes: everything on the device, other processes included.
        num_alloc_retries: how often the allocator had to flush its cache and try again.
        graph_pools_bytes: private pools of captured CUDA graphs at the end; no emptied cache gives
            them back. `None` where nobody can tell.
        earlier_pools_bytes: what such pools held as the trial began, of sizes that ran before in
            the same process; it is in `peak_bytes`.
        devices: each device of a model that is spread over several; empty otherwise. The other
            figures are then those of the fullest, in proportion to the smallest capacity.
    """

    peak_bytes: int
    peak_source: str
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    process_bytes: int | None = None
    device_used_bytes: int | None = None
    num_alloc_retries: int | None = None
    graph_pools_bytes: int | None = None
    earlier_pools_bytes: int | None = None
    devices: tuple[DeviceMemory, ...] = ()
    unavailable: dict[str, str] = {}
