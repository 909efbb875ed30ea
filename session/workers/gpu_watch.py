"""NVML beside the trials: one sampler a GPU and run, one window a timed trial."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import msgspec

from ...advisor.measured.energy import samples_per_joule
from ...probes.devices import host
from ...probes.devices.gpu_in_use import GpuInUse
from ...probes.nvml.sampler import NvmlSampler
from ...records import GPU_LIMITS, Counters, DeviceInfo, Trial
from ..recording.store import RunStore


class GpuWatch:
    """Opens a window when the timed phase begins and closes it with the trial.

    Where the script uses several GPUs, energy and power are those of all together, limits and other
    processes those of any; the rest is that of the first.

    Args:
        gpus: UUIDs of the devices.
    """

    def __init__(self, gpus: Sequence[str]) -> None:
        self._gpus = tuple(gpus)
        self._samplers: list[NvmlSampler] = []
        self._open = False
        self._warm_since_s: float | None = None
        self._since_s = 0.0
        self._counters: Counters | None = None

    @classmethod
    def for_device(cls, device: DeviceInfo, in_use: Iterable[GpuInUse] = ()) -> GpuWatch | None:
        """A watch for NVIDIA devices, `None` for others.

        Args:
            in_use: all GPUs of the script's process, the one that it trains on among them.
        """
        if device.kind != "cuda" or device.uuid is None:
            return None
        others = [entry.uuid for entry in in_use if entry.uuid is not None]
        return cls(list(dict.fromkeys([device.uuid, *others])))

    def follow(self, pid: int | None) -> None:
        """Watches for a worker; with `None` the watch rests."""
        self.close()
        self._warm_since_s = None  # a trial that died began to warm up
        if pid is not None:
            pids = [pid, *host.descendants(pid)]
            self._samplers = [NvmlSampler(entry, pids) for entry in self._gpus]
            for entry in self._samplers:
                entry.start()

    def phase(self, phase: str, timed_until_s: float | None = None) -> None:
        """The trial entered a phase.

        Args:
            timed_until_s: when its timed steps ended, on the monotonic clock.
        """
        if not self._samplers:
            return
        now = time.monotonic()
        if phase == "warming up" and self._warm_since_s is None:
            self._warm_since_s = now
        if timed_until_s is not None:
            self._end(timed_until_s)
        elif phase == "timing" and not self._open:
            warm_s = now - self._warm_since_s if self._warm_since_s is not None else 0.0
            self._since_s = now
            for entry in self._samplers:
                entry.begin(steady_s=warm_s)
            self._open = True

    def into(self, trial: Trial, store: RunStore) -> Trial:
        """The trial with its counters; raw samples go to `samples.jsonl`."""
        if not self._samplers:
            return trial
        self._end()
        counters, self._counters = self._counters, None
        self._warm_since_s = None
        if counters is None or trial.step_s is None:
            return trial
        for place, sampler in enumerate(self._samplers):
            rows = sampler.samples(self._since_s)
            which = {"gpu": place} if place else {}
            store.append(
                [{"trial": trial.ordinal, **which, **msgspec.to_builtins(entry)} for entry in rows]
            )
        doubts = (*trial.doubts, *doubts_of(counters))
        trial = msgspec.structs.replace(trial, counters=counters, doubts=doubts)
        return msgspec.structs.replace(trial, samples_per_joule=samples_per_joule(trial))

    def close(self) -> None:
        """Ends the samplers' threads."""
        self._end()
        while self._samplers:
            self._samplers[-1].stop()
            self._samplers.pop()

    def _end(self, at_s: float | None = None) -> None:
        if self._open and self._samplers:
            self._open = False
            self._counters = of_all([entry.end(at_s) for entry in self._samplers])


def doubts_of(counters: Counters) -> list[str]:
    """Reasons why a time may not be the device's own: what else was on the GPU, or held it back.

    A clock that somebody set and a software power cap are how the device is run, not a doubt: the
    cap is the ordinary state of a data-centre GPU under full load, and every size meets it.
    """
    doubts = []
    if counters.other_processes:
        doubts.append(f"other processes on the GPU: {', '.join(counters.other_processes)}")
    limits = [entry for entry in counters.throttle_reasons if entry in GPU_LIMITS]
    if limits:
        doubts.append(f"the GPU was slowed down: {', '.join(limits)}")
    return doubts


def of_all(counters: Sequence[Counters]) -> Counters:
    """The counters of several GPUs that one process uses."""
    first, *others = counters
    if not others:
        return first
    unavailable = dict(first.unavailable)
    sums: dict[str, float | None] = {}
    for field in ("energy_j", "power_w"):
        values = [getattr(entry, field) for entry in counters]
        missing = next((place for place, value in enumerate(values) if value is None), None)
        sums[field] = None if missing is not None else sum(values)
        if missing is not None:
            why = counters[missing].unavailable.get(field, "it was not read")
            unavailable[field] = f"of GPU {missing} of {len(counters)}: {why}"
    shares = [entry.throttled_pct for entry in counters if entry.throttled_pct is not None]
    return msgspec.structs.replace(
        first,
        **sums,
        throttled_pct=max(shares, default=None),
        throttle_reasons=_once(entry.throttle_reasons for entry in counters),
        other_processes=_once(entry.other_processes for entry in counters),
        unavailable=unavailable,
    )


def _once(lists: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for texts in lists for text in texts))
