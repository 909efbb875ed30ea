"""What a device tells while a loop runs on it: peaks of memory by size, and NVML's counters."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from typing import Any

from ..probes.devices import host
from ..records import Counters, DeviceInfo, Memory
from .device_times import Timeline
from .devices import HostProbe, MemoryProbe, TorchProbe, nvml_sampler, rank_share
from .loop_info import Facts

PROFILER_ROOM = 0.95
"""A peak above this share of the capacity leaves no room for the profiler's own memory."""


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
