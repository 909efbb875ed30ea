"""Samples per joule: what the GPU's own counters say a size costs."""

from __future__ import annotations

import math

from ...records import Counters, Spread, Trial
from .measurements import Measurements
from .once import once

SHORTEST_S = 2.0
"""Seconds of steady work of a size over which energy must be counted, at least."""
UPDATES = 20
"""Updates of the driver's counter over which energy must be counted, at least."""
UPDATE_S = 0.1
"""Seconds between two updates where none was seen; counters move every 20 to 100 ms."""
EDGE_SD = 1 / math.sqrt(6)
"""A window's two edges fall anywhere between two updates: the difference of two uniform errors has
this standard deviation, in updates."""
Z = 1.96
"""Standard deviations of a normal error on either side of a 95 % interval."""


def samples_per_joule(trial: Trial) -> float | None:
    """Samples over the energy that the device took for them; `None` where it was not measured."""
    if trial.samples_per_joule is not None:
        return trial.samples_per_joule
    power = None if trial.counters is None else trial.counters.mean_w
    if trial.samples_per_s is None or not power or too_short(trial.counters):
        return None
    return trial.samples_per_s.median / power


def too_short(counters: Counters | None) -> str:
    """Why a window says nothing of energy: too few updates of the counter; empty if not."""
    if counters is None or counters.window_s is None:
        return ""
    needed_s = max(SHORTEST_S, UPDATES * (counters.energy_update_s or UPDATE_S))
    if counters.window_s >= needed_s:
        return ""
    return f"the window lasted {counters.window_s:.2f} s, energy needs {needed_s:.3g} s"


def joules_spread(trial: Trial) -> Spread | None:
    """Samples per joule with their interval; `None` where they were not measured.

    The error of the energy is that of a window's edges, which fall between two updates of the
    driver's counter; that of the samples per second adds to it.
    """
    value = samples_per_joule(trial)
    if value is None:
        return None
    width = 0.0 if trial.samples_per_s is None else trial.samples_per_s.relative_half_width
    counters = trial.counters
    if counters is not None and counters.window_s:
        edges = Z * EDGE_SD * (counters.energy_update_s or UPDATE_S) / counters.window_s
        width = math.hypot(width, edges)
    num = 1 if trial.samples_per_s is None else trial.samples_per_s.num_samples
    low, high = value * max(0.0, 1 - width), value * (1 + width)
    return Spread(median=value, low=low, high=high, num_samples=num, confidence=0.95)


def energy_measured(measurements: Measurements) -> bool:
    """Whether any timed size of the search has its energy."""
    return any(samples_per_joule(trial) is not None for trial in measurements.searched.values())


@once
def thriftiest(measurements: Measurements) -> int | None:
    """The size with the most samples per joule; `None` where no energy was measured.

    Of sizes whose intervals meet that of the best reading none can be told from it: the smallest
    is taken.
    """
    known = {
        size: value
        for size, trial in measurements.searched.items()
        if (value := joules_spread(trial)) is not None
    }
    if not known:
        return None
    best = max(known.values(), key=lambda spread: spread.median)
    return min(size for size, value in known.items() if value.high >= best.low)


def why_not(measurements: Measurements) -> str:
    """Why no energy was measured."""
    device = measurements.record.device
    if device is not None and device.kind != "cuda":
        return f"no energy is measured on {device.kind}: the counters are those of NVIDIA"
    reasons = [
        trial.counters.unavailable.get("energy_j")
        or trial.counters.unavailable.get("power_w")
        or too_short(trial.counters)
        for trial in measurements.record.trials
        if trial.counters is not None
    ]
    known = next((reason for reason in reasons if reason), "")
    return "no energy was measured" + (f": {known}" if known else "")
