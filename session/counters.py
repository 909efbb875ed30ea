"""NVML beside the trials: one sampler a run, one window a timed trial."""

from __future__ import annotations

import time

import msgspec

from ..advisor.energy import samples_per_joule
from ..probes import host
from ..probes.nvml import NvmlSampler
from ..records import Counters, DeviceInfo, Trial
from .store import RunStore


class GpuWatch:
    """Opens a window when the timed phase begins and closes it with the trial.

    Args:
        gpu: UUID of the device.
    """

    def __init__(self, gpu: str) -> None:
        self._gpu = gpu
        self._sampler: NvmlSampler | None = None
        self._open = False
        self._warm_since_s: float | None = None
        self._since_s = 0.0
        self._counters: Counters | None = None

    @classmethod
    def for_device(cls, device: DeviceInfo) -> GpuWatch | None:
        """A watch for an NVIDIA device, `None` for others."""
        return cls(device.uuid) if device.kind == "cuda" and device.uuid is not None else None

    def follow(self, pid: int | None) -> None:
        """Watches for a worker; with `None` the watch rests."""
        self.close()
        if pid is not None:
            self._sampler = NvmlSampler(self._gpu, [pid, *host.descendants(pid)])
            self._sampler.start()

    def phase(self, phase: str) -> None:
        """The trial entered a phase."""
        if self._sampler is None:
            return
        now = time.monotonic()
        if phase == "warming up" and self._warm_since_s is None:
            self._warm_since_s = now
        if phase == "timing" and not self._open:
            warm_s = now - self._warm_since_s if self._warm_since_s is not None else 0.0
            self._since_s = now
            self._sampler.begin(steady_s=warm_s)
            self._open = True
        elif phase == "profiling":
            self._end()

    def into(self, trial: Trial, store: RunStore) -> Trial:
        """The trial with its counters; raw samples go to `samples.jsonl`."""
        if self._sampler is None:
            return trial
        self._end()
        counters, self._counters = self._counters, None
        self._warm_since_s = None
        if counters is None or trial.step_s is None:
            return trial
        rows = self._sampler.samples(self._since_s)
        store.append([{"trial": trial.ordinal, **msgspec.to_builtins(one)} for one in rows])
        doubts = list(trial.doubts)
        if counters.other_processes:
            doubts.append(f"other processes on the GPU: {', '.join(counters.other_processes)}")
        if counters.throttle_reasons:
            doubts.append(f"the GPU was slowed down: {', '.join(counters.throttle_reasons)}")
        trial = msgspec.structs.replace(trial, counters=counters, doubts=tuple(doubts))
        return msgspec.structs.replace(trial, samples_per_joule=samples_per_joule(trial))

    def close(self) -> None:
        """Ends the sampler's thread."""
        self._end()
        if self._sampler is not None:
            self._sampler.stop()
            self._sampler = None

    def _end(self) -> None:
        if self._open and self._sampler is not None:
            self._open = False
            self._counters = self._sampler.end()
