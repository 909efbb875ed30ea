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
