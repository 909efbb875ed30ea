"""The throughput search: grow until it no longer pays, then close in on the knee.

The knee is the smallest size whose throughput is within the goal's tolerance of the best. Among
sizes next to each other, one whose epoch ends without a harmful short batch comes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import sqrt

from ..records import RunRecord, TimeLaw, Trial, TrialRequest
from .cost import Budget
from .energy import samples_per_joule
from .facts import (
    known_bad,
    searched,
    searched_trials,
    smallest_bad,
    target_bytes,
    throughput,
    trusted_memory,
)
from .laws import fit_time, knee_of
from .memory_guard import largest_safe
from .scaling import input_share
from .sizes import allowed, largest_allowed, smallest_allowed, smallest_sound
from .tail import clean_from, has_harmful_tail
from .thresholds import INPUT_SHARE
from .turns import field, more_rounds, next_comparison

GROWTH = 4.0
NO_GAIN = 0.01
"""Under the goal `throughput`, growth ends when a larger size gains less than this twice."""
CLEAR_LOSS = 0.1
"""A larger size this much slower than the best ends growth at once."""
BESIDE = 2.0
"""The best size's neighbours are at most this far from it: everything is compared with it."""
CLOSE = 1.15
"""A law's proposal this close to a measured size says nothing new."""
BRACKET = 1.34
"""Ratio of the first size inside to the last outside at which refining ends."""
TAIL_REACH = 1.34
"""How much larger a size without a harmful tail may be than the knee."""
MAX_REFINEMENTS = 5
COSTLY = 0.1
"""Beyond a size that lost already, a trial may cost this share of the budget."""
FALLING = 1.05
"""A step that takes this many times as long as one of a larger size is doubted."""
DIP = 0.95
"""So is a throughput below this share of both its neighbours'."""
MAX_AGAIN = 4
SAME = 0.01
"""Sizes this close to the best are as good."""
ENOUGH = 0.25
"""The ratio of knee and best is known to this share of the tolerance, or time is up."""
LAW_FROM = 0.5
"""The time law is taken from sizes with this share of the best throughput: small batches leave
cores idle and follow another line."""
SPEED_GOALS = ("throughput", "energy")
"""Goals that grow until it no longer pays and look for no knee."""


def next_size(record: RunRecord, budget: Budget) -> TrialRequest | str:
    """The next trial of the search, or why it is over."""
    return (
        _again(record)
        or next_comparison(record)
        or _grow(record, budget)
        or _refine(record)
        or _sharpen(record)
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


def tail_avoided(record: RunRecord) -> int | None:
    """The smaller size that `knee` passed over for the end of its epoch, if it did."""
    sizes = searched(record)
    if not sizes:
        return None
    smallest, chosen = min(_inside(record, sizes)), knee(record)
    return (
        smallest
        if chosen is not None and smallest < chosen and _harmful(record, smallest)
        else None
    )


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
    floor = best.samples_per_s.median * (1 - min(SAME, max(SAME / 2, half_width)))
    return min(size for size, trial in sizes.items() if throughput(trial) >= floor)


def best_throughput(sizes: dict[int, Trial]) -> float:
    """The highest median, samples per second."""
    return max(map(throughput, sizes.values()))


def best_size(sizes: dict[int, Trial]) -> int:
    """The size with the highest median; of those that are as good, the smallest."""
    floor = (1 - SAME) * best_throughput(sizes)
    return min(size for size, one in sizes.items() if throughput(one) >= floor)


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


def _inside(record: RunRecord, sizes: dict[int, Trial]) -> list[int]:
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
    counts = Counter(one.batch_size for one in searched_trials(record))
    suspects = [size for size, one in sizes.items() if one.doubts]
    compared = field(record)
    for size in dict.fromkeys([*suspects, *slower_than_larger(sizes, FALLING), *_dips(sizes)]):
        if size in compared:
            continue
        if counts[size] == 1 and sum(counts.values()) - len(counts) < MAX_AGAIN:
            return _timed(record, size, "timed again: something seems to have disturbed it")
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
        costly = budget.trial_s(request) > COSTLY * record.goal.budget_s
        if budget.allows(request) and not (
            costly and throughput(sizes[last]) < best_throughput(sizes)
        ):
            return request
    return None


def _growth_pays(record: RunRecord, sizes: dict[int, Trial]) -> bool:
    """Whether the last step up gained enough to go on."""
    worth = _worth(record)
    ladder = _ladder(sizes)
    gains = [
        worth(sizes[size]) / max(worth(sizes[one]) for one in sizes if one < size) - 1
        for size in ladder[1:]
    ]
    if not gains:
        return True
    if record.goal.kind in SPEED_GOALS:
        return gains[-1] > -CLEAR_LOSS and (len(gains) < 2 or max(gains[-2:]) >= NO_GAIN)
    # A gain below the tolerance puts the size before inside it. And with t(B) = a + b B all that
    # is left to gain is 1 / (r - 1) of what the last step up by r gained.
    tolerance = record.goal.tolerance
    left = gains[-1] / (ladder[-1] / ladder[-2] - 1)
    return gains[-1] >= tolerance / (1 - tolerance) and left >= tolerance / 2


def _refine(record: RunRecord) -> TrialRequest | None:
    """A size between the last one outside the tolerance and the first one inside."""
    sizes = searched(record)
    beside = _beside_the_best(record, sizes)
    if beside is not None or record.goal.kind in SPEED_GOALS:
        return beside
    if not sizes or len(sizes) - len(_ladder(sizes)) >= MAX_REFINEMENTS:
        return None
    inside = min(_inside(record, sizes))
    least = max(smallest_allowed(record), smallest_sound(record))
    outside = max((size for size in sizes if size < inside), default=None)
    if outside is None:
        wanted = allowed(record, max(least, inside // 4)) if inside > least else inside
    elif inside <= outside * BRACKET or inside - outside <= 1 or _at_the_law(record, inside):
        return None
    else:
        wanted = _between(record, sizes, outside, inside)
        if not outside < wanted < inside:
            return None
    if wanted in sizes or known_bad(record, wanted):
        return None
    return _timed(record, wanted, "close to the knee")


def _sharpen(record: RunRecord) -> TrialRequest | None:
    """More rounds of the sizes that the knee follows from."""
    sizes = searched(record)
    if not sizes:
        return None
    best = best_size(sizes)
    if record.goal.kind in SPEED_GOALS:
        top = best_throughput(sizes)
        rivals = [one for one, trial in sizes.items() if may_be_best(trial, top)]
        rivals.sort(key=lambda one: throughput(sizes[one]))
        return more_rounds(record, rivals, rivals[-2], rivals[-1], NO_GAIN) if rivals[1:] else None
    size = knee(record)
    assert size is not None
    top = best_throughput(sizes)
    larger = [one for one, trial in sizes.items() if one > best and may_be_best(trial, top)]
    smaller = [
        one for one, trial in sizes.items() if one <= best and throughput(trial) >= LAW_FROM * top
    ]
    # Which size is the best decides as much as how near to it the knee is.
    other = (
        best if size < best else max(larger, key=lambda one: throughput(sizes[one]), default=best)
    )
    precision = ENOUGH * record.goal.tolerance
    return more_rounds(record, {*smaller, *larger, size}, size, other, precision)


def _beside_the_best(record: RunRecord, sizes: dict[int, Trial]) -> TrialRequest | None:
    """A size between the best and its neighbours, where they are far apart."""
    if len(sizes) - len(_ladder(sizes)) >= MAX_REFINEMENTS or not sizes:
        return None
    worth = _worth(record)
    # The smallest of those that are as good: a flat curve is not searched to its far end.
    good = (1 - NO_GAIN) * max(map(worth, sizes.values()))
    best = min(size for size, one in sizes.items() if worth(one) >= good)
    smaller = [size for size in sizes if size < best][-1:]
    larger = [size for size in sizes if size > best][:1]
    for other in (*smaller, *larger):
        wanted = allowed(record, sqrt(other * best))
        apart = max(other, best) > BESIDE * min(other, best)
        if apart and wanted not in sizes and not known_bad(record, wanted):
            return _timed(record, wanted, f"between {min(other, best)} and {max(other, best)}")
    return None


def _at_the_law(record: RunRecord, inside: int) -> bool:
    """Whether a size is inside by the law and too close to the threshold to be told by times."""
    sizes = searched(record)
    tolerance = record.goal.tolerance
    rate = sizes[inside].samples_per_s
    floor = (1 - tolerance) * best_throughput(sizes)
    law = law_of(sizes)
    if isinstance(law, str) or rate is None or rate.low >= floor:
        return False
    return inside <= knee_of(law, best_size(sizes), tolerance) * CLOSE


def _between(record: RunRecord, sizes: dict[int, Trial], outside: int, inside: int) -> int:
    """Where a law puts the knee, if it agrees with the bracket; else the geometric middle."""
    tolerance = record.goal.tolerance
    law = law_of(sizes)
    if not isinstance(law, str):
        proposal = allowed(record, knee_of(law, best_size(sizes), tolerance), up=True)
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
    if wanted is None:
        wanted = _clean_below(record, sizes, size)
    if wanted is None or wanted in sizes or known_bad(record, wanted):
        return None
    return _timed(record, wanted, f"next to {size}, whose epochs end in a harmful short batch")


def _clean_below(record: RunRecord, sizes: dict[int, Trial], size: int) -> int | None:
    """A smaller clean size that the law puts within the tolerance; the best first.

    Taken where memory, the data or the largest size tried leave no larger one.
    """
    law = law_of(sizes)
    if isinstance(law, str) or record.discovery is None:
        return None

    def predicted(one: int) -> float:
        return one / (law.fixed_s + law.slope_s * one)

    floor = (1 - record.goal.tolerance) * best_throughput(sizes)
    least = max(smallest_allowed(record), smallest_sound(record), int(size / TAIL_REACH))
    near = dict.fromkeys(allowed(record, one) for one in range(size - 1, least - 1, -1))
    return clean_from(
        record.discovery, (one for one in near if least <= one < size and predicted(one) >= floor)
    )


def _harmful(record: RunRecord, size: int) -> bool:
    return record.discovery is not None and has_harmful_tail(record.discovery, size)


def _ladder(sizes: dict[int, Trial]) -> list[int]:
    """The sizes of the growth phase: each at least 1.4 times the one before."""
    steps: list[int] = []
    for size in sorted(sizes):
        if not steps or size >= steps[-1] * 1.4:
            steps.append(size)
    return steps


def _worth(record: RunRecord) -> Callable[[Trial], float]:
    """What the goal compares sizes by."""
    return _per_joule if record.goal.kind == "energy" else throughput


def _per_joule(trial: Trial) -> float:
    """What the goal `energy` grows by; throughput where no energy was measured."""
    return samples_per_joule(trial) or throughput(trial)


def _timed(record: RunRecord, size: int, reason: str) -> TrialRequest:
    return TrialRequest(batch_size=size, kind="timed", profile=record.goal.profile, reason=reason)
