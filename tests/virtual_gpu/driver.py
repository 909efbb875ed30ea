"""The virtual GPU as NVML tells of it: the real `pynvml` and sampler over the stand-in library."""

import os

from batchadvisor.probes.nvml.sampler import NvmlSampler

from .allocator import MIB


def drive(stub, gpu, index=0):
    """From now on the stand-in answers what the machine is at the moment of the question."""

    def tell():
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


def sampler_on(clock):
    """The real sampler on the virtual clock: what its thread does is done as that time passes."""

    class Sampler(NvmlSampler):
        def __init__(self, gpu, pids=None, **options):
            super().__init__(gpu, pids, clock=lambda: clock() / 1e9, **options)

        def _begin_sampling(self):
            self._slow_due_s = self._clock()
            clock.every(self._period_s, self._turn)

        def _end_sampling(self):
            clock.forget(self._turn)

        def _turn(self):
            self._sample(self._clock())

    return Sampler
