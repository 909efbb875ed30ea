"""The virtual GPU as NVML tells of it: the real `pynvml` and sampler over the stand-in library."""

from __future__ import annotations

import os
from typing import Any

from batchadvisor.probes.nvml.sampler import NvmlSampler

from .allocator import MIB
from .device import Clock, VirtualGpu


def drive(stub: Any, gpu: VirtualGpu, index: int = 0) -> None:
    """From now on the stand-in answers what the machine is at the moment of the question."""

    def tell() -> None:
        now_ns, supply = gpu.clock.now_ns, gpu.supply
        phase = supply.phase(now_ns)
        own_bytes = gpu.reserved_bytes
        values = {
            "energy_mj": supply.told_mj(now_ns),
            "power_mw": supply.told_mw(now_ns),
            "utilization_pct": supply.told_pct(now_ns),
            "sm_mhz": phase.mhz,
            "throttle": phase.bits if supply.is_busy(now_ns) else 0x1,
            "total_mib": gpu.capacity_bytes // MIB,
            "used_mib": (gpu.other_bytes + own_bytes) // MIB,
            "own_mib": own_bytes // MIB,
            "pid": os.getpid(),
            "others": int(gpu.has_neighbour),
        }
        for name, value in values.items():
            stub[f"{index}.{name}"] = value

    stub.refresh(tell)


def sampler_on(clock: Clock) -> type[NvmlSampler]:
    """The real sampler on the virtual clock: what its thread does is done as that time passes."""

    class Sampler(NvmlSampler):
        def __init__(self, gpu: str | int, pids: Any = None, **options: Any) -> None:
            super().__init__(gpu, pids, clock=lambda: clock() / 1e9, **options)

        def _begin_sampling(self) -> None:
            self._slow_due_s = self._clock()
            clock.every(self._period_s, self._turn)

        def _end_sampling(self) -> None:
            clock.forget(self._turn)

        def _turn(self) -> None:
            self._sample(self._clock())

    return Sampler
