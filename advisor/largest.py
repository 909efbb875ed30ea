"""The memory search: the largest size that fits, with as few trials and failures as can be."""

from __future__ import annotations

from ..records import RunRecord, TrialRequest
from .cost import BUDGET_SPENT, Budget
from .facts import ran, smallest_bad, target_bytes, trusted_memory
from .fit_plan import Seen, next_fit
from .requests import fit_request
from .sizes import effective_batch, largest_allowed

CPU_UNCERTAINTY = 0.02
"""Peaks of resident memory differ by about so much from run to run, as a share."""
SEGMENT_BYTES = 20 * 1024**2
"""torch's caching allocator reserves memory in segments of up to this size."""


def next_size(record: RunRecord, budget: Budget) -> TrialRequest | str:
    """The next fit trial, or why the search is over."""
    seen = seen_so_far(record)
    if seen is None:
        return "nothing ran"
    sizes = {one.batch_size for one in ran(record)}
    top = largest_allowed(record)
    target = seen.target_bytes
    last = max((one for one in sizes if seen.peaks.get(one, 0) <= target), default=0)
    if last >= top:
        return "the largest allowed size fits"
    wanted = next_fit(seen)
    if isinstance(wanted, str):
        return wanted
    size = min(wanted, top)
    if record.goal.keep_effective_batch:
        size = _divisor(record, size, last, top)
    if size in sizes or 0 < size <= last or (seen.refused is not None and size >= seen.refused):
        return "the largest size is bracketed"
    request = fit_request(size, "does it fit?")
    # Fits are not timed, so what the next one will take is a guess; what was spent is not.
    spent = record.search_s >= record.goal.budget_s or not budget.allows(request)
    return BUDGET_SPENT if spent else request


def seen_so_far(record: RunRecord) -> Seen | None:
    """What the record says about memory, `None` before anything ran."""
    target = target_bytes(record)
    sizes = {one.batch_size for one in ran(record)}
    if not sizes or target is None or record.device is None:
        return None
    memory = trusted_memory(record)
    searches = [one for one in record.trials if one.purpose == "search"]
    cpu = record.device.kind == "cpu"
    return Seen(
        peaks={size: one.peak_bytes for size, one in memory.items()},
        unread=frozenset(sizes - memory.keys()),
        refused=smallest_bad(record),
        target_bytes=target,
        uncertainty=(CPU_UNCERTAINTY, 0) if cpu else (0.0, SEGMENT_BYTES),
        num_refusals=sum(one.outcome == "out_of_memory" for one in searches),
    )


def _divisor(record: RunRecord, size: int, last: int, top: int) -> int:
    """The divisor of the kept batch below a size, or the next one above what ran, within bounds."""
    whole = effective_batch(record)
    divisors = [one for one in range(1, min(whole, top) + 1) if whole % one == 0]
    below = [one for one in divisors if last < one <= size]
    return below[-1] if below else next((one for one in divisors if one > last), last)
