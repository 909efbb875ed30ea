"""The throughput search: grow until it no longer pays, then close in on the knee.

The knee is the smallest size whose throughput is within the goal's tolerance of the best. Among
sizes next to each other, one whose epoch ends without a harmful short batch comes first.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import sqrt

from ..records import RunRecord, TimeLaw, Trial, TrialRequest
from .cost import Budget
from .energy import samples_per_joule
from .facts import (
    known_bad,
    searched,
    smallest_bad,
    target_bytes,
    throughput,
    timed,
    trusted_memory,
)
from .laws import fit_time, knee_of
from .memory_guard import largest_safe
from .scaling import input_share
from .sizes import allowed, largest_allowed, smallest_allowed, smallest_sound
from .tail import clean_from, has_harmful_tail
from .thresholds import INPUT_SHARE

GROWTH = 4.0
NO_GAIN = 0.01
"""Under the goal `throughput`, growth ends when a larger size gains less than this twice."""
CLOSE = 1.15
"""A law's proposal this close to a measured size says nothing new."""
BRACKET = 1.34
"""Ratio of the first size inside to the last outside at which refining ends."""
TAIL_REACH = 1.34
"""How much larger a size without a harmful tail may be than the knee."""
MAX_REFINEMENTS = 5
FALLING = 1.05
"""A step that takes this many times as long as one of a larger size is doubted."""
DIP = 0.95
"""So is a throughput below this share of both its neighbours'."""
MAX_AGAIN = 4
CONTENDER = 0.75
"""Sizes from this share of the best throughput on may be the best: a slow phase takes as much."""
CONTENDER_COST = 0.1
"""A second reading may cost this share of the budget."""
SPEED_GOALS = ("throughput", "energy")
"""Goals that grow until it no longer pays and look for no knee."""


def next_size(record: RunRecord, budget: Budget) -> TrialRequest | str:
    """The next trial of the search, or why it is over."""
    return (
        _again(record)
        or _grow(record, budget)
        or _contenders(record)
        or _refine(record)
        or _clean(record)
        or "the knee is bracketed"
    )


def knee(record: RunRecord) -> int | None:
    """The size that ran and is the knee by what the search found."""
    sizes = searched(record)
    if not sizes:
        return None
    inside = _inside(record, sizes)
    smallest = min(inside)
    own = record.discovery.native_batch_size if record.discovery is not None else None
    if own in inside and input_share(sizes[own]) >= INPUT_SHARE:
        return own  # the loader sets the pace: no size gains anything over the script's own
    near = [size for size in inside if size <= smallest * TAIL_REACH]
    clean = [size for size in near if not _harmful(record, size)]
    return min(clean, default=smallest)


def fastest(record: RunRecord) -> int | None:
    """The size with the highest throughput; of sizes that the noise cannot tell apart, the
    smallest.
    """
    sizes = searched(record)
    if not sizes:
        return None
    best = max(sizes.values(), key=throughput)
    assert best.samples_per_s is not None
    half_width = best.samples_per_s.relative_half_width
    floor = best.samples_per_s.median * (1 - min(0.02, max(0.005, half_width)))
    return min(size for size, trial in sizes.items() if throughput(trial) >= floor)


def best_throughput(sizes: dict[int, Trial]) -> float:
    """The highest median, samples per second."""
    return max(map(throughput, sizes.values()))


def plateau_end(sizes: dict[int, Trial], tolerance: float) -> int:
    """The largest size within the tolerance of the best.

    The curve is flat there, and which of its sizes reads highest is chance; where it ends is not.
    """
    floor = (1 - tolerance) * best_throughput(sizes)
    return max(size for size, one in sizes.items() if throughput(one) >= floor)


def law_of(sizes: dict[int, Trial], tolerance: float) -> TimeLaw | str:
    """The time law up to the end of the plateau: beyond it paging or caches take over."""
    end = plateau_end(sizes, tolerance)
    return fit_time(
        {
            size: one.step_s.median
            for size, one in sizes.items()
            if one.step_s is not None and size <= end
        }
    )


def _inside(record: RunRecord, sizes: dict[int, Trial]) -> list[int]:
    """The sizes measured within the tolerance of the best, BatchNorm's minimum kept; never empty.

    What was measured decides here; the law only proposes what to measure.
    """
    sound = smallest_sound(record)
    sizes = {size: one for size, one in sizes.items() if size >= sound} or sizes
    floor = (1 - record.goal.tolerance) * best_throughput(sizes)
    return [size for size, trial in sizes.items() if throughput(trial) >= floor]


def slower_than_larger(sizes: dict[int, Trial], factor: float) -> list[int]:
    """Sizes whose step took `factor` times as long as that of a larger size, or longer."""
    times = {size: one.step_s.median for size, one in sizes.items() if one.step_s is not None}
    return [
        size
        for size, time in times.items()
        if any(other > size and time > factor * times[other] for other in times)
    ]


def _again(record: RunRecord) -> TrialRequest | None:
    """A size that something seems to have disturbed is timed once more.

    It is when others used the machine meanwhile, when a larger size was faster a step, or when
    its throughput falls below that of both its neighbours. If it stays so, it is real.
    """
    sizes = searched(record)
    counts = Counter(one.batch_size for one in timed(record) if one.purpose == "search")
    suspects = [size for size, one in sizes.items() if one.doubts]
    for size in dict.fromkeys([*suspects, *slower_than_larger(sizes, FALLING), *_dips(sizes)]):
        if counts[size] == 1 and sum(counts.values()) - len(counts) < MAX_AGAIN:
            return _timed(record, size, "timed again: something seems to have disturbed it")
    return None


def _contenders(record: RunRecord) -> TrialRequest | None:
    """On a CPU the sizes near the best are timed twice, some time apart.

    Processors have slow phases of many seconds that no counter shows; two readings of a size
    that lie apart seldom both fall into one. A GPU's clock is steadier, and throttling is seen.
    """
    if record.device is None or record.device.kind != "cpu":
        return None
    sizes = searched(record)
    counts = Counter(one.batch_size for one in timed(record) if one.purpose == "search")
    floor = CONTENDER * best_throughput(sizes)
    for size, one in sizes.items():
        cheap = one.elapsed_s <= CONTENDER_COST * record.goal.budget_s
        if counts[size] == 1 and cheap and throughput(one) >= floor:
            return _timed(record, size, "timed twice: near the best")
    return None


def _dips(sizes: dict[int, Trial]) -> list[int]:
    """Sizes with clearly less throughput than the next smaller and the next larger one."""
    ordered = list(sizes)
    return [
        size
        for before, size, after in zip(ordered, ordered[1:], ordered[2:], strict=False)
        if throughput(sizes[size]) < DIP * min(throughput(sizes[before]), throughput(sizes[after]))
    ]


def _grow(record: RunRecord, budget: Budget) -> TrialRequest | None:
    sizes = searched(record)
    if not sizes or not _growth_pays(record, sizes):
        return None
    last = max(sizes)
    top = largest_allowed(record)
    limit = target_bytes(record)
    if limit is not None:
        safe = largest_safe(trusted_memory(record), limit, smallest_bad(record))
        top = min(top, safe) if safe is not None else top
    for factor in (GROWTH, 2.0, 1.5):
        size = allowed(record, min(top, last * factor))
        if size <= last * 1.1 or size > top or known_bad(record, size):
            continue
        request = _timed(record, size, f"x{size / last:.1f}: does a larger batch still pay?")
        if budget.allows(request):
            return request
    return None


def _growth_pays(record: RunRecord, sizes: dict[int, Trial]) -> bool:
    """Whether the last step up gained enough to go on."""
    worth = _per_joule if record.goal.kind == "energy" else throughput
    gains = [
        worth(sizes[after]) / worth(sizes[before]) - 1
        for before, after in pairwise(sorted(sizes))
        if after >= before * 1.4
    ]
    if not gains:
        return True
    if record.goal.kind in SPEED_GOALS:
        return len(gains) < 2 or max(gains[-2:]) >= NO_GAIN
    # A gain below the tolerance puts the size before inside it.
    tolerance = record.goal.tolerance
    return gains[-1] >= tolerance / (1 - tolerance)


def _refine(record: RunRecord) -> TrialRequest | None:
    """A size between the last one outside the tolerance and the first one inside."""
    sizes = searched(record)
    if record.goal.kind in SPEED_GOALS or not sizes:
        return None
    if len(sizes) - len(_ladder(sizes)) >= MAX_REFINEMENTS:
        return None
    inside = min(_inside(record, sizes))
    least = max(smallest_allowed(record), smallest_sound(record))
    outside = max((size for size in sizes if size < inside), default=None)
    if outside is None:
        wanted = allowed(record, max(least, inside // 4)) if inside > least else inside
    elif inside <= outside * BRACKET or inside - outside <= 1:
        return None
    else:
        wanted = _between(record, sizes, outside, inside)
        if not outside < wanted < inside:
            return None
    if wanted in sizes or known_bad(record, wanted):
        return None
    return _timed(record, wanted, "close to the knee")


def _between(record: RunRecord, sizes: dict[int, Trial], outside: int, inside: int) -> int:
    """Where a law puts the knee, if it agrees with the bracket; else the geometric middle."""
    tolerance = record.goal.tolerance
    law = law_of(sizes, tolerance)
    if not isinstance(law, str):
        proposal = allowed(record, knee_of(law, plateau_end(sizes, tolerance), tolerance), up=True)
        if outside * CLOSE <= proposal <= inside / CLOSE:
            return proposal
    return allowed(record, sqrt(inside * outside))


def _clean(record: RunRecord) -> TrialRequest | None:
    """One more size where the knee's epoch would end in a harmful short batch."""
    size = knee(record)
    if record.goal.kind in SPEED_GOALS or size is None or not _harmful(record, size):
        return None
    assert record.discovery is not None
    sizes = searched(record)
    top = int(min(max(sizes), size * TAIL_REACH, largest_allowed(record)))
    # Round sizes only: one that kernels dislike would cost more than the tail.
    near = dict.fromkeys(allowed(record, one) for one in range(size + 1, top + 1))
    wanted = clean_from(record.discovery, (one for one in near if size < one <= top))
    if wanted is None or wanted in sizes or known_bad(record, wanted):
        return None
    return _timed(record, wanted, f"next to {size}, whose epochs end in a harmful short batch")


def _harmful(record: RunRecord, size: int) -> bool:
    return record.discovery is not None and has_harmful_tail(record.discovery, size)


def _ladder(sizes: dict[int, Trial]) -> list[int]:
    """The sizes of the growth phase: each at least 1.4 times the one before."""
    steps: list[int] = []
    for size in sorted(sizes):
        if not steps or size >= steps[-1] * 1.4:
            steps.append(size)
    return steps


def _per_joule(trial: Trial) -> float:
    """What the goal `energy` grows by; throughput where no energy was measured."""
    return samples_per_joule(trial) or throughput(trial)


def _timed(record: RunRecord, size: int, reason: str) -> TrialRequest:
    return TrialRequest(batch_size=size, kind="timed", profile=record.goal.profile, reason=reason)
