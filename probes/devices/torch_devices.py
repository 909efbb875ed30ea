"""The device under measurement: memory, a point on its timeline, synchronisation.

One small class a kind. CUDA and the CPU have their own counters; other accelerators (MPS, XPU)
are read through torch's generic accelerator API as far as it goes.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from ...records import DeviceInfo, Memory
from . import host
from .device_probe import DeviceProbe, HostTimeline, within
from .gpus_in_use import uuid_of


def probe_for(device: torch.device, limit_bytes: int | None) -> DeviceProbe:
    """The probe for the device that the script's parameters live on."""
    if device.type == "cpu":
        return CpuProbe(limit_bytes)
    if device.type == "cuda":
        return CudaProbe(device, limit_bytes)
    return AcceleratorProbe(device, limit_bytes)


class CpuProbe(HostTimeline):
    """A process on the CPU: the kernel's own peak of resident memory."""

    def __init__(self, limit_bytes: int | None) -> None:
        self._limit_bytes = limit_bytes
        # What is free for this process is what it has plus what is left.
        free = host.available_bytes()
        own = host.status_bytes("VmRSS") or 0
        self._free = (free[0] + own, free[1]) if free else None

    def info(self) -> DeviceInfo:
        total = host.total_bytes() or 0
        free = self._free or (total, "memory of the machine")
        capacity, source = within(self._limit_bytes, *free)
        return DeviceInfo(
            kind="cpu",
            name=host.cpu_name(),
            total_bytes=total,
            capacity_bytes=capacity,
            capacity_source=source,
            limit_bytes=self._limit_bytes,
            num_cores=host.num_cores(),
        )

    def reset_peaks(self) -> None:
        gc.collect()
        _trim_heap()
        _reset_high_water_mark()

    def read_memory(self) -> Memory:
        peak = host.status_bytes("VmHWM")
        if peak is not None:
            return Memory(
                peak_bytes=peak,
                peak_source="peak resident memory of the process (VmHWM)",
                process_bytes=host.status_bytes("VmRSS"),
                unavailable=dict.fromkeys(
                    ("allocated_bytes", "reserved_bytes", "num_alloc_retries"),
                    "torch counts no allocations on a CPU",
                ),
            )
        import resource

        return Memory(
            peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            peak_source="largest resident memory since the process started (ru_maxrss)",
        )


class CudaProbe:
    """A CUDA or ROCm device: torch's caching allocator and CUDA events."""

    def __init__(self, device: torch.device, limit_bytes: int | None) -> None:
        self._device = device
        self._limit_bytes = limit_bytes
        self._retries = 0
        self._earlier_pools_bytes: int | None = None

    def info(self) -> DeviceInfo:
        properties = torch.cuda.get_device_properties(self._device)
        free, total = torch.cuda.mem_get_info(self._device)
        own = torch.cuda.memory_reserved(self._device)
        # The context and libraries of this process cannot be told from other processes without
        # NVML, so both count as taken.
        source = "free memory of the device and what the allocator holds"
        capacity, source = within(self._limit_bytes, free + own, source)
        return DeviceInfo(
            kind="cuda",
            name=properties.name,
            index=self._device.index or 0,
            uuid=uuid_of(self._device),
            total_bytes=total,
            capacity_bytes=capacity,
            capacity_source=source,
            limit_bytes=self._limit_bytes,
        )

    def reset_peaks(self) -> None:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)
        self._retries = int(torch.cuda.memory_stats(self._device).get("num_alloc_retries", 0))
        self._earlier_pools_bytes = graph_pools_bytes(self._device)

    def read_memory(self) -> Memory:
        stats = torch.cuda.memory_stats(self._device)
        free, total = torch.cuda.mem_get_info(self._device)
        reserved = torch.cuda.max_memory_reserved(self._device)
        return Memory(
            peak_bytes=reserved,
            peak_source=f"peak reserved by torch's caching allocator{_with_segments()}",
            allocated_bytes=torch.cuda.max_memory_allocated(self._device),
            reserved_bytes=reserved,
            device_used_bytes=total - free,
            num_alloc_retries=int(stats.get("num_alloc_retries", 0)) - self._retries,
            graph_pools_bytes=graph_pools_bytes(self._device),
            earlier_pools_bytes=self._earlier_pools_bytes,
            unavailable={"process_bytes": "read through NVML, see counters"},
        )

    def synchronize(self) -> None:
        torch.cuda.synchronize(self._device)

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def elapsed_s(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float | None:
        if not end.query():  # type: ignore[no-untyped-call]
            return None
        return float(start.elapsed_time(end)) / 1e3

    def reach(self, mark: torch.cuda.Event, /) -> None:
        mark.synchronize()


def _with_segments() -> str:
    """Whether the allocator was told to join its pieces; torch 2.9 renamed the variable."""
    said = (os.environ.get(name, "") for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"))
    on = any("expandable_segments:true" in text.lower().replace(" ", "") for text in said)
    return " (expandable segments)" if on else ""


class AcceleratorProbe(HostTimeline):
    """MPS, XPU and others, through `torch.accelerator` as far as this torch has it."""

    def __init__(self, device: torch.device, limit_bytes: int | None) -> None:
        self._device = device
        self._limit_bytes = limit_bytes
        # torch.accelerator.memory came with torch 2.9; before that each backend has its own.
        self._memory: Any = getattr(torch.accelerator, "memory", None) or getattr(
            torch, device.type, None
        )

    def info(self) -> DeviceInfo:
        total = self._call("recommended_max_memory") or host.total_bytes() or 0
        capacity, source = within(self._limit_bytes, total, "memory of the device")
        return DeviceInfo(
            kind=self._device.type,
            name=self._device.type,
            index=self._device.index,
            total_bytes=total,
            capacity_bytes=capacity,
            capacity_source=source,
            limit_bytes=self._limit_bytes,
        )

    def reset_peaks(self) -> None:
        gc.collect()
        self._call("empty_cache")
        self._call("reset_peak_memory_stats")

    def read_memory(self) -> Memory:
        reserved = self._call("max_memory_reserved")
        allocated = self._call("max_memory_allocated")
        current = self._call("driver_allocated_memory") or self._call("current_allocated_memory")
        peak = reserved or allocated or current
        return Memory(
            peak_bytes=peak or host.status_bytes("VmHWM") or 0,
            peak_source="peak of torch's allocator"
            if reserved or allocated
            else "memory at the end of the window, not a peak",
            allocated_bytes=allocated,
            reserved_bytes=reserved,
            unavailable={} if reserved else {"reserved_bytes": "this torch has no counter for it"},
        )

    def synchronize(self) -> None:
        torch.accelerator.synchronize(self._device)

    def mark(self) -> float:
        # Generic events carry no time on every backend, so the timeline is the host's; the
        # device is waited for at each mark, which costs a little overlap.
        self.synchronize()
        return time.perf_counter()

    def _call(self, name: str) -> int | None:
        function = getattr(self._memory, name, None)
        if function is None:
            return None
        try:
            value = function()
        except (RuntimeError, NotImplementedError, AttributeError, TypeError):
            return None
        return int(value) if isinstance(value, int) else None


def limit_process_memory(limit_bytes: int) -> bool:
    """Makes the kernel refuse memory to this process beyond about `limit_bytes` resident.

    RLIMIT_DATA counts private writable pages whether used or not, and no file pages; the
    difference to resident memory is taken as it is now, after torch was imported.

    Returns:
        Whether there is room for a script: Python and torch alone take less.
    """
    import resource

    data = host.status_bytes("VmData")
    anonymous = host.status_bytes("RssAnon")
    resident = host.status_bytes("VmRSS")
    if data is None or anonymous is None or resident is None:
        return True
    allowed = max(data, limit_bytes - (resident - anonymous) + (data - anonymous))
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    if hard != resource.RLIM_INFINITY:
        allowed = min(allowed, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, hard))
    return resident < limit_bytes


@contextlib.contextmanager
def limited_process_memory(limit_bytes: int | None) -> Iterator[None]:
    """Limits memory for a while, in a process that goes on afterwards; `None` limits nothing."""
    if limit_bytes is None:
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    limit_process_memory(limit_bytes)
    now = resource.getrlimit(resource.RLIMIT_DATA)
    if before[0] != resource.RLIM_INFINITY and before[0] < now[0]:
        resource.setrlimit(resource.RLIMIT_DATA, before)  # the user's own limit is tighter
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def lift_process_memory_limit() -> None:
    """Takes the limit away again, so that what happened under it can be reported."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def _reset_high_water_mark() -> None:
    """Writing 5 to clear_refs sets VmHWM back to what is resident now (proc(5))."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _trim_heap() -> None:
    """Gives freed memory back to the kernel, as emptying a cache does on a GPU (glibc)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


# Memory that captured CUDA graphs keep.
#
# A graph that was captured owns a private pool of the caching allocator for as long as it lives:
# `torch.compile` with graphs keeps one for the shapes it met, and no emptied cache gives it back
# (PyTorch's notes on CUDA semantics, "Graph memory management"). In a process that runs size after
# size, a peak therefore holds the pools of the sizes before.

_SHARED = (0, 0)
"""The pool of everything that is no graph."""


def graph_pools_bytes(device: torch.device) -> int | None:
    """Bytes of private pools on a GPU; `None` where this torch does not tell."""
    try:
        return in_private_pools(_segments(), device.index or 0)
    except (RuntimeError, KeyError, TypeError):  # another allocator or torch, a broken context
        return None


def in_private_pools(segments: Iterable[Mapping[str, Any]], device: int) -> int:
    """Bytes of a snapshot's segments that belong to private pools.

    Raises:
        KeyError: the segments do not name their pools.

    >>> pool = {"device": 0, "total_size": 2097152, "segment_pool_id": (0, 1)}
    >>> in_private_pools([pool, {**pool, "segment_pool_id": (0, 0)}, {**pool, "device": 1}], 0)
    2097152
    """
    return sum(
        int(segment["total_size"])
        for segment in segments
        if segment["device"] == device and tuple(segment["segment_pool_id"]) != _SHARED
    )


def _segments() -> Iterable[Mapping[str, Any]]:
    # Never with the history that the user may record. An older torch lacks the argument.
    snapshot: Callable[..., Iterable[Mapping[str, Any]]] = torch.cuda.memory_snapshot
    return snapshot(include_traces=False)
