"""What the measured sizes say: which is the best, and which is the knee.

The knee is the smallest size whose throughput is within the goal's tolerance of the best. Among
sizes next to each other, one whose epoch ends without a harmful short batch comes first. Which
sizes are measured for that, knee_search.py says.
"""

from __future__ import annotations

from ..records import RunRecord, TimeLaw, Trial
from .facts import searched, throughput
from .laws import fit_time, knee_of
from .scaling import input_share
from .sizes import smallest_sound
from .tail import REACH, harmful
from .thresholds import INPUT_SHARE

SAME = 0.01
"""Sizes this close to the best are as good."""
UNSURE = 0.05
"""A size whose interval begins so much below that of another is not called the fastest."""
CLOSE = 1.15
"""A law's proposal this close to a measured size says nothing new."""
LAW_FROM = 0.5
"""The time law is taken from sizes with this share of the best throughput: small batches leave
cores idle and follow another line."""


def knee(record: RunRecord) -> int | None:
    """The size that ran and is the knee by what the search found."""
    sizes = searched(record)
    if not sizes:
        return None
    within = inside(record, sizes)
    smallest = min(within)
    own = record.discovery.native_batch_size if record.discovery is not None else None
    if own in within and input_share(sizes[own]) >= INPUT_SHARE:
        return own  # the loader sets the pace: no size gains anything over the script's own
    near = [size for size in within if size <= smallest * REACH]
    clean = [size for size in near if not harmful(record, size)]
    return min(clean, default=smallest)


def tail_avoided(record: RunRecord) -> int | None:
    """The smaller size that `knee` passed over for the end of its epoch, if it did."""
    sizes, chosen = searched(record), knee(record)
    if chosen is None:
        return None
    smallest = min(inside(record, sizes))
    return smallest if smallest < chosen and harmful(record, smallest) else None


def fastest(record: RunRecord) -> int | None:
    """The best size of what the search found, of those that are surely fast.

    One that was timed once, by itself, may have had luck: its interval begins far below others'.
    """
    sizes = searched(record)
    lows = {size: one.samples_per_s.low for size, one in sizes.items() if one.samples_per_s}
    floor = (1 - UNSURE) * max(lows.values(), default=0.0)
    sure = {size: sizes[size] for size, low in lows.items() if low >= floor}
    return best_size(sure) if sure else None


def inside(record: RunRecord, sizes: dict[int, Trial]) -> list[int]:
    """The sizes within the tolerance of the best, BatchNorm's minimum kept; never empty.

    What was measured decides where its interval lies on one side of the threshold. Elsewhere the
    time law does, which pools all sizes, and without a law the median.
    """
    tolerance = record.goal.tolerance
    sound = smallest_sound(record)
    sizes = {size: one for size, one in sizes.items() if size >= sound} or sizes
    floor = (1 - tolerance) * best_throughput(sizes)
    law = law_of(sizes)
    knee_by_law = None
    if not isinstance(law, str):
        knee_by_law = knee_of(law, best_size(sizes), tolerance) / CLOSE

    def is_inside(size: int, trial: Trial) -> bool:
        rate = trial.samples_per_s
        assert rate is not None
        if knee_by_law is None or not rate.low < floor <= rate.high:
            return rate.median >= floor
        return size >= knee_by_law

    best = max(sizes, key=lambda size: throughput(sizes[size]))
    return [size for size, trial in sizes.items() if size == best or is_inside(size, trial)]


def best_size(sizes: dict[int, Trial]) -> int:
    """The size with the highest median; of those that the noise cannot tell from it the smallest.

    Args:
        sizes: by batch size, at least one.
    """
    best = max(sizes.values(), key=throughput)
    assert best.samples_per_s is not None
    same = min(SAME, max(SAME / 2, best.samples_per_s.relative_half_width))
    floor = (1 - same) * throughput(best)
    return min(size for size, one in sizes.items() if throughput(one) >= floor)


def best_throughput(sizes: dict[int, Trial]) -> float:
    """The highest median, samples per second."""
    return max(map(throughput, sizes.values()))


def may_be_best(trial: Trial, top: float) -> bool:
    """Whether the noise leaves it open that a size is the fastest."""
    return trial.samples_per_s is not None and trial.samples_per_s.high >= top


def law_of(sizes: dict[int, Trial]) -> TimeLaw | str:
    """The time law up to the best size: beyond it paging or caches take over."""
    end = best_size(sizes)
    floor = LAW_FROM * best_throughput(sizes)
    return fit_time(
        {
            size: one.step_s.median
            for size, one in sizes.items()
            if one.step_s is not None and size <= end and throughput(one) >= floor
        }
    )
