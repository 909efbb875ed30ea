"""The two effects of readings of sizes that met in rounds: that of the size, that of the round."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

MAX_SWEEPS = 50
CONVERGED = 1e-6
"""Alternations between the two effects end at a change this small; where all sizes are in all
rounds at the second."""

Readings = Sequence[dict[int, float]]
"""A round each: size to log of samples per second."""


def effects(readings: Readings) -> list[float]:
    """The effect of each round, by least squares: means of what the other effect leaves."""
    by_round = [fmean(reading.values()) for reading in readings]
    for _ in range(MAX_SWEEPS):
        rest: defaultdict[int, list[float]] = defaultdict(list)
        for effect, reading in zip(by_round, readings, strict=True):
            for size, value in reading.items():
                rest[size].append(value - effect)
        by_size = {size: fmean(values) for size, values in rest.items()}
        before = by_round
        by_round = [
            fmean([value - by_size[size] for size, value in reading.items()])
            for reading in readings
        ]
        if max(abs(new - old) for new, old in zip(by_round, before, strict=True)) < CONVERGED:
            break
    return by_round
