"""The throughput search: grow until it no longer pays, then close in on the knee.

The knee is the smallest size whose throughput is within the goal's tolerance of the best.
"""

from __future__ import annotations

from itertools import pairwise
from math import sqrt

from ..records import RunRecord, TimeLaw, Trial, TrialRequest
from .cost import Budget
from .facts import latest_timed, smallest_bad, target_bytes, trusted_memory
from .laws import fit_time, knee_of
from .memory_guard import largest_safe
from .sizes import allowed, largest_allowed

GROWTH = 4.0
NO_GAIN = 0.01
"""Under the goal `throughput`, growth ends when a larger size gains less than this twice."""
CLOSE = 1.15
"""A measured size within this ratio of where the knee is computed needs no neighbour."""
BRACKET = 1.25
"""Without a law: ratio of the first size inside to the last outside at which refining ends."""
MAX_REFINEMENTS = 4


def next_size(record: RunRecord, budget: Budget) -> TrialRequest | str:
    """The next trial of the search, or why it is over."""
    return _grow(record, budget) or _refine(record) or "the knee is bracketed"


def knee(record: RunRecord) -> int | None:
    """The size that ran and is the knee by what is known now."""
    sizes = latest_timed(record)
    if not sizes:
        return None
    best = best_throughput(sizes)
    law = fit_time(_times(sizes))
    tolerance = record.goal.tolerance
    if not isinstance(law, str):
        wanted = knee_of(law, max(sizes), tolerance)
        inside = [size for size in sizes if size * CLOSE >= wanted]
        return min(inside) if inside else max(sizes)
    floor = (1 - tolerance) * best
    return min(size for size, trial in sizes.items() if _throughput(trial) >= floor)


def fastest(record: RunRecord) -> int | None:
    """The size with the highest throughput; of sizes that the noise cannot tell apart, the
    smallest.
    """
    sizes = latest_timed(record)
    if not sizes:
        return None
    best = max(sizes.values(), key=_throughput)
    assert best.samples_per_s is not None
    half_width = best.samples_per_s.relative_half_width
    floor = best.samples_per_s.median * (1 - min(0.02, max(0.005, half_width)))
    return min(size for size, trial in sizes.items() if _throughput(trial) >= floor)


def best_throughput(sizes: dict[int, Trial]) -> float:
    """The highest median, samples per second."""
    return max(_throughput(trial) for trial in sizes.values())


def _grow(record: RunRecord, budget: Budget) -> TrialRequest | None:
    sizes = latest_timed(record)
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
        if size <= last * 1.1 or (size > top):
            continue
        bad = smallest_bad(record)
        if bad is not None and size >= bad:
            continue
        request = _timed(record, size, f"x{size / last:.1f}: does a larger batch still pay?")
        if budget.allows(request):
            return request
    return None


def _growth_pays(record: RunRecord, sizes: dict[int, Trial]) -> bool:
    """Whether the last step up gained enough to go on."""
    ordered = sorted(sizes)
    if len(ordered) < 2:
        return True
    gains = [
        _throughput(sizes[after]) / _throughput(sizes[before]) - 1
        for before, after in pairwise(ordered)
        if after >= before * 1.4
    ]
    if not gains:
        return True
    if record.goal.kind == "throughput":
        return len(gains) < 2 or max(gains[-2:]) >= NO_GAIN
    tolerance = record.goal.tolerance
    # A gain below the tolerance puts the size before inside it. One more step up makes sure
    # that a single slow reading did not end the growth.
    return gains[-1] >= tolerance / (1 - tolerance)


def _refine(record: RunRecord) -> TrialRequest | None:
    sizes = latest_timed(record)
    if record.goal.kind == "throughput" or not sizes:
        return None
    num_refined = sum(1 for one in record.trials if one.purpose == "search") - len(
        [size for size in sizes if size in _ladder(sizes)]
    )
    if num_refined >= MAX_REFINEMENTS:
        return None
    law = fit_time(_times(sizes))
    wanted = _by_bracket(record, sizes) if isinstance(law, str) else _by_law(record, law, sizes)
    if wanted is None or wanted in sizes:
        return None
    bad = smallest_bad(record)
    if bad is not None and wanted >= bad:
        return None
    return _timed(record, wanted, "close to the knee")


def _by_law(record: RunRecord, law: TimeLaw, sizes: dict[int, Trial]) -> int | None:
    wanted = knee_of(law, max(sizes), record.goal.tolerance)
    if any(size / CLOSE <= wanted <= size * CLOSE for size in sizes):
        return None
    size = allowed(record, wanted, up=True)
    return size if size <= max(sizes) else None


def _by_bracket(record: RunRecord, sizes: dict[int, Trial]) -> int | None:
    floor = (1 - record.goal.tolerance) * best_throughput(sizes)
    inside = min(size for size, trial in sizes.items() if _throughput(trial) >= floor)
    outside = max((size for size in sizes if size < inside), default=None)
    if outside is None:
        return None if inside == 1 else allowed(record, max(1, inside // 4))
    if inside <= outside * BRACKET or inside - outside <= 1:
        return None
    middle = allowed(record, sqrt(inside * outside))
    return middle if outside < middle < inside else None


def _ladder(sizes: dict[int, Trial]) -> list[int]:
    """The sizes of the growth phase: each at least 1.4 times the one before."""
    steps: list[int] = []
    for size in sorted(sizes):
        if not steps or size >= steps[-1] * 1.4:
            steps.append(size)
    return steps


def _times(sizes: dict[int, Trial]) -> dict[int, float]:
    return {size: one.step_s.median for size, one in sizes.items() if one.step_s is not None}


def _throughput(trial: Trial) -> float:
    assert trial.samples_per_s is not None
    return trial.samples_per_s.median


def _timed(record: RunRecord, size: int, reason: str) -> TrialRequest:
    return TrialRequest(batch_size=size, kind="timed", profile=record.goal.profile, reason=reason)
