"""The sweep's curve of throughput over batch size: its grid, its smoothing, its knee."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import Any

from batchadvisor.advisor.measured.sizes import round_size

RATIO = 1.15
BANDWIDTH = 1.5
"""Of the smoothing, in steps of the grid."""


def grid(largest: int) -> list[int]:
    """Distinct integers from 1 to `largest`, each about RATIO times the one before."""
    count = int(math.log(largest) / math.log(RATIO)) + 1
    sizes = {round(RATIO**power) for power in range(count + 1)} | {largest}
    return sorted(size for size in sizes if size <= largest)


def medians(rows: Iterable[dict[str, Any]]) -> dict[int, float]:
    """Size to the median of its throughputs, in the order of the sizes."""
    speeds: dict[int, list[float]] = {}
    for row in rows:
        if row["samples_per_s"]:
            speeds.setdefault(row["batch_size"], []).append(row["samples_per_s"])
    return {size: statistics.median(speeds[size]) for size in sorted(speeds)}


def smoothed(curve: dict[int, float]) -> dict[int, float]:
    """Local straight lines through log throughput over log size, weighted by a Gaussian.

    Sizes that are far from their neighbours (1, 2, 3) keep their own value.
    """
    points = [(math.log(size), math.log(speed)) for size, speed in curve.items()]
    width = BANDWIDTH * math.log(RATIO)
    smooth = {}
    for size in curve:
        at = math.log(size)
        weights = [math.exp(-(((x - at) / width) ** 2) / 2) for x, _ in points]
        total = sum(weights)
        mean_x = sum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
        mean_y = sum(w * y for w, (_, y) in zip(weights, points, strict=True)) / total
        across = sum(w * (x - mean_x) ** 2 for w, (x, _) in zip(weights, points, strict=True))
        rise = sum(
            w * (x - mean_x) * (y - mean_y) for w, (x, y) in zip(weights, points, strict=True)
        )
        slope = rise / across if across > 1e-12 else 0.0
        smooth[size] = math.exp(mean_y + slope * (at - mean_x))
    return smooth


def knee_of(smooth: dict[int, float], tolerance: float) -> int:
    """The smallest size within `tolerance` of the best."""
    floor = (1 - tolerance) * max(smooth.values())
    return min(size for size, speed in smooth.items() if speed >= floor)


def within_one_step(size: int, other: int) -> bool:
    """Whether two sizes are at most one step of the grid apart, rounded as the tool rounds."""
    low, high = sorted((size, other))
    return high <= max(low + 1, low * RATIO, round_size(low * RATIO))
