"""Samples per joule: what the GPU's own counters say a size costs."""

from __future__ import annotations

from ..records import Counters, RunRecord, Trial
from .facts import searched

TIE = 0.01
"""Of sizes whose samples per joule differ by less, the smallest is taken."""


def watts(counters: Counters | None) -> float | None:
    """Mean power of a window: the energy counter over its time, else the median of the samples."""
    if counters is None:
        return None
    if counters.energy_j is not None and counters.window_s:
        return counters.energy_j / counters.window_s
    return counters.power_w


def samples_per_joule(trial: Trial) -> float | None:
    """Samples over the energy that the device took for them; `None` where it was not measured."""
    if trial.samples_per_joule is not None:
        return trial.samples_per_joule
    power = watts(trial.counters)
    if trial.samples_per_s is None or not power:
        return None
    return trial.samples_per_s.median / power


def energy_measured(record: RunRecord) -> bool:
    """Whether any timed size of the search has its energy."""
    return any(samples_per_joule(one) is not None for one in searched(record).values())


def thriftiest(record: RunRecord) -> int | None:
    """The size with the most samples per joule; `None` where no energy was measured."""
    known = {
        size: value
        for size, trial in searched(record).items()
        if (value := samples_per_joule(trial)) is not None
    }
    if not known:
        return None
    best = max(known.values())
    return min(size for size, value in known.items() if value >= best * (1 - TIE))


def why_not(record: RunRecord) -> str:
    """Why no energy was measured."""
    if record.device is not None and record.device.kind != "cuda":
        return f"no energy is measured on {record.device.kind}: the counters are those of NVIDIA"
    reasons = [
        one.counters.unavailable.get("energy_j") or one.counters.unavailable.get("power_w")
        for one in record.trials
        if one.counters is not None
    ]
    known = next((one for one in reasons if one), "")
    return "no energy was measured" + (f": {known}" if known else "")
