"""Laws fitted to trials: memory and time as fixed + slope x batch size. A law may refuse."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from ...records import MemoryLaw, TimeLaw
from .isotonic import rising
from .least_squares import fits

MAX_MEMORY_RESIDUAL = 0.05
"""A memory law that misses one of its points by more is refused."""
FLOOR_GROWTH = 0.02
"""Peak memory that grows by less than this while the size at least doubles lies on a floor that
the batch does not set (optimizer step, weights, libraries)."""
SLOPE_AGREEMENT = 0.15
"""How much the slopes of the last two pairs may differ in a law that is used to predict."""
MAX_TIME_RESIDUAL = 0.08
"""A time law that misses one of its points by more is refused."""


def line_through(points: Sequence[tuple[float, float]]) -> tuple[float, float, float] | None:
    """Fixed part, slope and largest relative miss of the least-squares line.

    Residuals are taken relative to each point's value, so that small sizes, which set the fixed
    part, count as much as large ones. The fixed part is not let below zero.
    """
    if len({x for x, _ in points}) < 2:
        return None
    best = min(fits([(1 / y, x / y) for x, y in points], range(2)), key=lambda fit: fit.squares)
    fixed, slope = best.numbers
    return (fixed, slope, max(map(abs, best.misses))) if slope else None


def fit_memory(peaks: Mapping[int, int], target_bytes: int) -> MemoryLaw | str:
    """The law of peak memory, or the reason why there is none.

    It is taken from the largest sizes: below some size the peak is set by something that the
    batch does not move, and a line through such points can be wrong by a factor of ten.

    Args:
        peaks: size to peak, in bytes.
        target_bytes: what a size may take.
    """
    points = above_floor(peaks)
    if len(points) < 3:
        return f"three sizes that move the peak are needed; found: {len(points)}"
    (b0, m0), (b1, m1), (b2, m2) = points[-3:]
    before, last = (m1 - m0) / (b1 - b0), (m2 - m1) / (b2 - b1)
    if before <= 0 or last <= 0:
        return "peak memory does not grow with the size"
    if abs(last - before) > SLOPE_AGREEMENT * last:
        return f"the slope changes from {before:.0f} to {last:.0f} bytes a sample"
    line = line_through([(float(b), float(m)) for b, m in points[-3:]])
    if line is None or line[2] > MAX_MEMORY_RESIDUAL:
        return "a straight line misses the measured peaks"
    fixed, slope, miss = line
    return MemoryLaw(
        fixed_bytes=fixed,
        slope_bytes=slope,
        residual=miss,
        sizes=tuple(b for b, _ in points[-3:]),
        largest_estimate=max(0, int((target_bytes - fixed) / slope)),
    )


def last_slope(peaks: Mapping[int, int]) -> float | None:
    """Bytes a sample between the two largest sizes, `None` while the peak lies on a floor."""
    points = above_floor(peaks)
    if len(points) < 2 or points[-1][1] <= points[0][1] * (1 + FLOOR_GROWTH):
        return None
    (b0, m0), (b1, m1) = points[-2:]
    return (m1 - m0) / (b1 - b0) if m1 > m0 else None


def slopes_agree(peaks: Mapping[int, int]) -> bool:
    """Whether the last two slopes say the same, so that a longer jump can be trusted."""
    points = above_floor(peaks)
    if len(points) < 3:
        return False
    before, last = ((m1 - m0) / (b1 - b0) for (b0, m0), (b1, m1) in pairwise(points[-3:]))
    return before > 0 and abs(last - before) <= SLOPE_AGREEMENT * last


def above_floor(peaks: Mapping[int, int]) -> list[tuple[int, int]]:
    """Points in order of size from where the peak begins to follow the size."""
    points = sorted(peaks.items())
    start = 0
    for position in range(1, len(points)):
        (b0, m0), (b1, m1) = points[start], points[position]
        if b1 >= 2 * b0 and m1 <= m0 * (1 + FLOOR_GROWTH):
            start = position
    return points[start:]


def fit_time(times: Mapping[int, float]) -> TimeLaw | str:
    """The law of step time, or the reason why there is none.

    Args:
        times: size to seconds per step.
    """
    points = sorted(times.items())
    if len(points) < 3:
        return f"three timed sizes are needed; found: {len(points)}"
    if points[-1][0] < 4 * points[0][0]:
        return "the timed sizes lie too close together"
    line = line_through([(float(b), t) for b, t in points])
    if line is None:
        return "step time does not grow with the size"
    fixed, slope, miss = line
    if miss > MAX_TIME_RESIDUAL:
        return f"a straight line misses a measured step time by {miss:.0%}"
    return TimeLaw(fixed_s=fixed, slope_s=slope, residual=miss, sizes=tuple(b for b, _ in points))


def size_at(law: TimeLaw, samples_per_s: float) -> float | None:
    """The size, at least 1, at which a time law reaches a throughput; `None` if it never does.

    With t(B) = a + b B the throughput is R = B / (a + b B), which gives B = a R / (1 - b R).
    """
    rest = 1 - law.slope_s * samples_per_s
    return max(1.0, law.fixed_s * samples_per_s / rest) if rest > 0 else None


def interpolated(
    times: Mapping[int, float], weights: Mapping[int, float] | None = None
) -> Callable[[int], float]:
    """Seconds per step by size, straight lines between measured sizes, never falling.

    Where a larger size was quicker, noise or a stall said so: the nearest times that never fall
    are taken, so that a stalled size gives way to its neighbours. Below the smallest size its own
    time is taken, which is an upper bound; nothing is said above the largest, and its time is given
    there.

    Args:
        weights: how much each time counts, by size; all the same where not given.
    """
    sizes = sorted(times)
    seconds = rising(
        [times[size] for size in sizes],
        [1.0 if weights is None else weights[size] for size in sizes],
    )

    def at(size: int) -> float:
        place = bisect_right(sizes, size)
        if place == 0 or place == len(sizes):
            return seconds[max(0, place - 1)]
        part = (size - sizes[place - 1]) / (sizes[place] - sizes[place - 1])
        return seconds[place - 1] + part * (seconds[place] - seconds[place - 1])

    return at
