"""What a device tells while a loop runs on it: peaks of memory by size, and NVML's counters.

Memory is read by the probes of torch, or those of a framework without torch.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from typing import Any, Protocol

import msgspec

from ..probes.devices import host
from ..records import Counters, DeviceInfo, Memory
from .device_times import Timeline
from .loop_info import Facts

SINCE_START = ", since the process started"
EVENT_PERIOD_NS = 50_000_000
"""Nanoseconds between two events: as long as the buffer waits anyway."""
WAIT_PERIOD_NS = 1_000_000_000
"""Nanoseconds between two waits for the device: it idles for a step of the host's then."""
PROFILER_ROOM = 0.95
"""A peak above this share of the capacity leaves no room for the profiler's own memory."""


class MemoryProbe(Protocol):
    """Questions that the recorder asks of a device, at most every few seconds."""

    def info(self) -> DeviceInfo:
        """The device and what the training can have of it."""

    def read_memory(self) -> Memory:
        """Peaks since the process started; they are the user's too, and never reset."""

    def held_bytes(self) -> int | None:
        """Bytes allocated now, between two steps; `None` where nobody counts."""

    def timeline(self) -> Timeline | None:
        """A clock for a device that runs behind the host; `None` where the host is the device."""


class TorchProbe:
    """A device of torch.

    Args:
        device: as `str(torch.device)`.
    """

    def __init__(self, device: str) -> None:
        import torch

        from ..probes.devices.torch_devices import probe_for

        self._device = torch.device(device)
        self._probe = probe_for(self._device, None)

    def info(self) -> DeviceInfo:
        return _within_limits(self._probe.info())

    def read_memory(self) -> Memory:
        memory = self._probe.read_memory()
        return msgspec.structs.replace(memory, peak_source=memory.peak_source + SINCE_START)

    def held_bytes(self) -> int | None:
        if self._device.type != "cuda":
            return None
        import torch

        # The nested form is the raw call; flattening it costs as much again.
        stats = torch.cuda.memory_stats_as_nested_dict(self._device)
        return int(stats["allocated_bytes"]["all"]["current"])

    def timeline(self) -> Timeline | None:
        if self._device.type == "cpu":
            return None
        if self._device.type == "cuda":
            return Timeline("the device's events", EVENT_PERIOD_NS, self._event, self._elapsed_s)
        clock = "the host's clock, the device waited for at both ends"
        return Timeline(clock, WAIT_PERIOD_NS, self._probe.mark, self._elapsed_s)

    def _event(self) -> Any:
        import torch

        # An event would become part of a graph that is being captured.
        if torch.cuda.is_current_stream_capturing():
            return None
        return self._probe.mark()

    def _elapsed_s(self, start: Any, end: Any) -> float | None:
        return self._probe.elapsed_s(start, end)


def waited_for() -> Timeline:
    """The host's clock, for frameworks that read each step's loss before they tell of its end."""
    return Timeline(
        "the host's clock, each end after a step's loss was read",
        EVENT_PERIOD_NS,
        time.perf_counter,
        lambda start, end: float(end - start),
    )


class HostProbe:
    """The process on its CPU, without torch: the kernel's own counters.

    Args:
        trains: whether the training itself runs on the CPU, not on a device without counters.
    """

    def __init__(self, *, trains: bool = True) -> None:
        self._trains = trains
        own = host.status_bytes("VmRSS") or 0
        free = host.available_bytes()
        self._free = (free[0] + own, free[1]) if free else None

    def info(self) -> DeviceInfo:
        total = host.total_bytes() or 0
        capacity, source = self._free or (total, "memory of the machine")
        return _within_limits(
            DeviceInfo(
                kind="cpu",
                name=host.cpu_name(),
                total_bytes=total,
                capacity_bytes=capacity,
                capacity_source=source,
                num_cores=host.num_cores(),
            )
        )

    def read_memory(self) -> Memory:
        import resource

        peak = host.status_bytes("VmHWM")
        if peak is None:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return Memory(
            peak_bytes=peak,
            peak_source="peak resident memory of the process (VmHWM)" + SINCE_START,
            process_bytes=host.status_bytes("VmRSS"),
            unavailable=dict.fromkeys(
                ("allocated_bytes", "reserved_bytes", "num_alloc_retries"),
                "the framework counts no allocations on a CPU",
            ),
        )

    def held_bytes(self) -> int | None:
        return None

    def timeline(self) -> Timeline | None:
        return None if self._trains else waited_for()


class AllocatorProbe:
    """An accelerator whose framework tells its allocator's counters, TensorFlow's or JAX's.

    Args:
        kind, name: of the device.
        read: bytes in use, their peak, and the limit where there is one.
    """

    def __init__(
        self, kind: str, name: str, read: Callable[[], tuple[int, int, int | None]]
    ) -> None:
        self._kind = kind
        self._name = name
        self._read = read

    def info(self) -> DeviceInfo:
        _, peak, limit = self._read()
        known = limit is not None
        return DeviceInfo(
            kind=self._kind,
            name=self._name,
            total_bytes=limit or peak,
            capacity_bytes=limit or peak,
            capacity_source="limit of the framework's allocator"
            if known
            else "peak of the framework's allocator; its limit is not known",
        )

    def read_memory(self) -> Memory:
        _, peak, _ = self._read()
        return Memory(
            peak_bytes=peak,
            peak_source="peak of the framework's allocator" + SINCE_START,
            allocated_bytes=peak,
            unavailable={"reserved_bytes": "the framework reserves ahead of need"},
        )

    def held_bytes(self) -> int | None:
        return self._read()[0]

    def timeline(self) -> Timeline | None:
        return waited_for()


def _within_limits(device: DeviceInfo) -> DeviceInfo:
    """On a CPU the user's own limits of the process count as its memory."""
    left = host.unused_limit_bytes() if device.kind == "cpu" else None
    if left is None:
        return device
    allowed = left[0] + (host.status_bytes("VmRSS") or 0)
    if allowed >= device.capacity_bytes:
        return device
    return msgspec.structs.replace(device, capacity_bytes=allowed, capacity_source=left[1])


def rank_share(device: DeviceInfo, num_ranks: int) -> DeviceInfo:
    """On a CPU the ranks of one host share its memory; a limit of the process is the rank's own."""
    if device.kind != "cpu" or num_ranks < 2 or device.capacity_source.startswith("RLIMIT"):
        return device
    return msgspec.structs.replace(
        device,
        capacity_bytes=device.capacity_bytes // num_ranks,
        capacity_source=f"a rank's share, 1 of {num_ranks}, of: {device.capacity_source}",
    )


def started_device() -> str | None:
    """The GPU that the training started, where no optimizer and no model told of its device."""
    import sys

    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return f"cuda:{torch.cuda.current_device()}"


def refuses_memory(error: BaseException) -> bool:
    """Whether an exception says that memory was refused, by any of the frameworks."""
    import sys

    text = f"{type(error).__name__}: {error}"
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text:
        return True
    if type(error).__name__ == "ResourceExhaustedError":
        return True
    if "torch" not in sys.modules:
        return False
    from ..probes.process.faults import is_out_of_memory

    return is_out_of_memory(error)


def nvml_sampler(device: DeviceInfo) -> Any:
    """A running sampler for an NVIDIA device at one sample a second, `None` for others."""
    if device.kind != "cuda" or device.uuid is None:
        return None
    from ..probes.nvml.sampler import NvmlSampler

    sampler = NvmlSampler(device.uuid, period_s=1.0)
    sampler.start()
    return sampler


class DeviceReadings:
    """Reads a device now and then; before `connect` there is nothing to read.

    Args:
        probe: of a framework without torch.

    Attributes:
        device: `None` before `connect`.
        peaks: of the whole process, by the largest size that it had seen when they were read.
        held_bytes: what was allocated at the last reading, between two steps.
        counters: of NVML, up to the last reading.
    """

    def __init__(self, probe: MemoryProbe | None) -> None:
        self.device: DeviceInfo | None = None
        self.peaks: dict[int, Memory] = {}
        self.held_bytes: int | None = None
        self.counters: Counters | None = None
        self._probe = probe
        self._sampler: Any = None

    def connect(self, facts: Facts) -> Timeline | None:
        """The device of the loop is known.

        Returns:
            Its clock, where it runs behind the host.
        """
        if self._probe is None:
            self._probe = TorchProbe(facts.device) if facts.device else HostProbe()
        self.device = rank_share(self._probe.info(), facts.local_world_size)
        return self._probe.timeline()

    def start_counters(self) -> None:
        """NVML is sampled from now on, where the device has it."""
        if self.device is not None:
            self._sampler = nvml_sampler(self.device)
        if self._sampler is not None:
            self._sampler.begin()

    def read(self, sizes: Collection[int]) -> None:
        """Memory and counters as they are now.

        Args:
            sizes: that the process has seen so far.
        """
        if self._probe is None:
            return
        self.held_bytes = self._probe.held_bytes()
        if sizes:
            self.peaks[max(sizes)] = self._probe.read_memory()
        if self._sampler is not None:
            self.counters = self._sampler.end()
            self._sampler.begin(steady_s=1.0)

    def read_peak(self, sizes: Collection[int]) -> None:
        """The peak alone, before a larger size than all of `sizes` runs."""
        if self._probe is not None and sizes:
            with contextlib.suppress(Exception):  # a peak less ends no training
                self.peaks[max(sizes)] = self._probe.read_memory()

    def held(self) -> tuple[Callable[[], int | None], str] | None:
        """How to read what is held between two steps, and what that is; `None` where nobody can.

        Cheap enough for each step: torch's own count on CUDA, resident memory on a CPU.
        """
        if self._probe is None or self.device is None:
            return None
        if self._probe.held_bytes() is not None:
            return self._probe.held_bytes, "what torch's allocator holds"
        if self.device.kind == "cpu" and host.resident_bytes() is not None:
            return host.resident_bytes, "resident memory"
        return None

    def leaves_no_room(self) -> bool:
        """Whether the memory is too nearly full for the profiler's own."""
        if self.device is None or self._probe is None or self.device.kind == "cpu":
            return False
        return self._probe.read_memory().peak_bytes > PROFILER_ROOM * self.device.capacity_bytes

    def stop(self) -> None:
        """Ends the sampling; the counters are those of the whole run then."""
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            self.counters = sampler.stop()
