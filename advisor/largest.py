"""The memory search: the largest size that fits, with as few trials and failures as can be."""

from __future__ import annotations

from math import sqrt

from ..records import RunRecord, TrialRequest
from .cost import Budget
from .facts import ran, smallest_bad, target_bytes, trusted_memory
from .laws import last_slope
from .memory_guard import GROWTH_CAP, largest_safe
from .sizes import allowed, largest_allowed, round_down

FULL = 0.95
"""A size of this share of what the last slope says fits ends the search."""
BRACKET = 0.05
"""Relative distance of the largest that ran to the smallest that failed that ends it."""


def next_size(record: RunRecord, budget: Budget) -> TrialRequest | str:
    """The next fit trial, or why the search is over."""
    sizes = {one.batch_size for one in ran(record)}
    target = target_bytes(record)
    if not sizes or target is None:
        return "nothing ran"
    memory = trusted_memory(record)
    fitting = [size for size in sizes if size not in memory or memory[size].peak_bytes <= target]
    over = [size for size in memory if memory[size].peak_bytes > target]
    bad = smallest_bad(record)
    ceiling = min([*over, *([bad] if bad is not None else [])], default=None)
    top = largest_allowed(record)
    last = max(fitting, default=0)
    if last >= top:
        return "the largest allowed size fits"
    peaks = {size: one.peak_bytes for size, one in memory.items()}
    slope = last_slope(peaks)
    if slope is not None and last in peaks:
        estimate = last + (target - peaks[last]) / slope
        if last >= FULL * estimate:
            return "the memory is used up to the margin"
    if ceiling is not None and (ceiling - last <= 1 or ceiling <= last * (1 + BRACKET)):
        return "the largest size is bracketed"
    size = _proposal(record, last, ceiling, target)
    size = min(size, top)
    if size in sizes or size <= last:
        return "the largest size is bracketed"
    request = TrialRequest(batch_size=size, kind="fit", reason="does it fit?")
    return request if budget.allows(request) else "the budget is spent"


def _proposal(record: RunRecord, last: int, ceiling: int | None, target: int) -> int:
    """The size to try: by the secant where the memory shows one, else by growing or halving."""
    memory = trusted_memory(record)
    if last == 0:
        return allowed(record, (ceiling or 2) // 2)
    below = {size: one for size, one in memory.items() if size <= last}
    safe = None
    if last_slope({size: one.peak_bytes for size, one in below.items()}) is not None:
        safe = largest_safe(below, target, None)
    # Where the secant has failed once it would go on failing, one step below the ceiling.
    if safe is not None and (ceiling is None or safe < ceiling):
        wanted = float(safe)
    elif ceiling is not None:
        # Far apart in proportion, close together in the middle.
        wanted = sqrt(last * ceiling) if ceiling > 2 * last else (last + ceiling) / 2
    else:
        wanted = last * GROWTH_CAP
    size = round_down(wanted)
    if size <= last:
        size = int(wanted)
    if ceiling is not None and size >= ceiling:
        size = ceiling - 1
    return max(size, last + 1) if ceiling is None or last + 1 < ceiling else last
