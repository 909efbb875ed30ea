"""The throughput search: grow until it no longer pays, then close in on the knee."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

from ..records import RunRecord, Trial, TrialRequest
from .clean_size import next_to_knee
from .cost import Budget
from .energy import samples_per_joule
from .facts import (
    known_bad,
    searched,
    smallest_bad,
    target_bytes,
    throughput,
    trusted_memory,
)
from .knee import (
    CLOSE,
    LAW_FROM,
    best_size,
    best_throughput,
    inside,
    knee,
    law_of,
    may_be_best,
)
from .laws import knee_of
from .memory_guard import largest_safe
from .requests import timed_request
from .sizes import allowed, largest_allowed, smallest_allowed, smallest_sound
from .suspects import again
from .turns import more_rounds, next_comparison

GROWTH = 4.0
NO_GAIN = 0.01
"""Under the goal `throughput`, growth ends when a larger size gains less than this twice."""
CLEAR_LOSS = 0.1
"""A larger size this much slower than the best ends growth at once."""
BESIDE = 2.0
"""The best size's neighbours are at most this far from it: everything is compared with it."""
BRACKET = 1.34
"""Ratio of the first size inside to the last outside at which refining ends."""
MAX_REFINEMENTS = 5
COSTLY = 0.1
"""Beyond a size that lost already, a trial may cost this share of the budget."""
TOO_COSTLY = 0.25
"""So much no step up may cost: a smaller one leaves time to compare what it found."""
ENOUGH = 0.25
"""The ratio of knee and best is known to this share of the tolerance, or time is up."""
SPEED_GOALS = ("throughput", "energy")
"""Goals that grow until it no longer pays and look for no knee."""


def next_size(record: RunRecord, budget: Budget) -> TrialRequest | str:
    """The next trial of the search, or why it is over."""
    return (
        again(record)
        or next_comparison(record)
        or _grow(record, budget)
        or _refine(record)
        or _sharpen(record)
        or next_to_knee(record)
        or "the knee is bracketed"
    )


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
        request = timed_request(record, size, f"x{size / last:.1f}: does a larger batch still pay?")
        share = budget.trial_s(request) / record.goal.budget_s
        lost = throughput(sizes[last]) < best_throughput(sizes)
        if share <= (COSTLY if lost else TOO_COSTLY) and budget.allows(request):
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
    first = min(inside(record, sizes))
    least = max(smallest_allowed(record), smallest_sound(record))
    outside = max((size for size in sizes if size < first), default=None)
    if outside is None:
        wanted = allowed(record, max(least, first // 4)) if first > least else first
    elif first <= outside * BRACKET or first - outside <= 1 or _at_the_law(record, first):
        return None
    else:
        wanted = _between(record, sizes, outside, first)
        if not outside < wanted < first:
            return None
    if wanted in sizes or known_bad(record, wanted):
        return None
    return timed_request(record, wanted, "close to the knee")


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
            return timed_request(
                record, wanted, f"between {min(other, best)} and {max(other, best)}"
            )
    return None


def _at_the_law(record: RunRecord, size: int) -> bool:
    """Whether a size is inside by the law and too close to the threshold to be told by times."""
    sizes = searched(record)
    tolerance = record.goal.tolerance
    rate = sizes[size].samples_per_s
    floor = (1 - tolerance) * best_throughput(sizes)
    law = law_of(sizes)
    if isinstance(law, str) or rate is None or rate.low >= floor:
        return False
    return size <= knee_of(law, best_size(sizes), tolerance) * CLOSE


def _between(record: RunRecord, sizes: dict[int, Trial], outside: int, inside: int) -> int:
    """Where a law puts the knee, if it agrees with the bracket; else the geometric middle."""
    tolerance = record.goal.tolerance
    law = law_of(sizes)
    if not isinstance(law, str):
        proposal = allowed(record, knee_of(law, best_size(sizes), tolerance), up=True)
        if outside * CLOSE <= proposal <= inside / CLOSE:
            return proposal
    return allowed(record, sqrt(inside * outside))


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
