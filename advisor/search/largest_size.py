"""The memory search: the largest size that fits, with as few trials and failures as can be."""

from __future__ import annotations

from ...records import TrialRequest
from ..measured.measurements import Measurements
from ..measured.memory_prior import prior_of
from ..measured.sizes import divisors_of, largest_allowed
from ..measured.thresholds import BUDGET_SPENT
from .cost import Budget
from .fit_plan import Seen, next_fit
from .requests import fit_request

CPU_UNCERTAINTY = 0.02
"""Peaks of resident memory differ by about so much from run to run, as a share."""
SEGMENT_BYTES = 20 * 1024**2
"""torch's caching allocator reserves memory in segments of up to this size."""


def next_size(measurements: Measurements, budget: Budget) -> TrialRequest | str:
    """The next fit trial, or why the search is over."""
    seen = seen_so_far(measurements)
    if seen is None:
        return "nothing ran"
    sizes = measurements.sizes_that_ran
    top = largest_allowed(measurements)
    target = seen.target_bytes
    fitting = [size for size in sizes if seen.peaks.get(size, 0) <= target]
    last = max((size for size in fitting if size <= top), default=0)
    if last >= top:
        return "the largest allowed size fits"
    wanted = next_fit(seen) if last == max(fitting, default=0) else top
    if isinstance(wanted, str):
        return wanted
    size = min(wanted, top)
    if measurements.goal.keep_effective_batch and measurements.own_size is not None:
        size = _divisor(measurements, size, last, top)
    else:
        size = measurements.multiples.nearest(size, size) if size > last else size
        if size <= last:
            size = measurements.multiples.nearest(last + 1, top, up=True)
        if size % measurements.goal.multiple_of:
            return "no smaller size is a multiple of what --multiple-of asks for"
    known = sizes | {failure.batch_size for failure in measurements.failed}
    if size in known or 0 < size <= last or (seen.refused is not None and size >= seen.refused):
        return "the largest size is bracketed"
    request = fit_request(size, "does it fit?")
    # Fits are not timed, so what the next one will take is a guess; what was spent is not.
    spent = measurements.record.search_s >= measurements.goal.budget_s or not budget.allows(request)
    return BUDGET_SPENT if spent else request


def seen_so_far(measurements: Measurements) -> Seen | None:
    """What the record says about memory, `None` before anything ran."""
    target = measurements.target_bytes
    sizes = measurements.sizes_that_ran
    device = measurements.record.device
    if not sizes or target is None or device is None:
        return None
    memory = measurements.trusted_memory
    searches = [trial for trial in measurements.failed if trial.purpose == "search"]
    refused = measurements.smallest_bad
    cpu = device.kind == "cpu"
    return Seen(
        peaks={size: reading.peak_bytes for size, reading in memory.items()},
        unread=frozenset(sizes - memory.keys()),
        refused=refused,
        target_bytes=target,
        uncertainty=(CPU_UNCERTAINTY, 0) if cpu else (0.0, SEGMENT_BYTES),
        num_refusals=sum(refused is not None and t.batch_size >= refused for t in searches),
        prior=prior_of(measurements),
    )


def _divisor(measurements: Measurements, size: int, last: int, top: int) -> int:
    """The divisor of the kept batch below a size, or the next one above what ran, within bounds."""
    divisors = divisors_of(measurements, top)
    below = [divisor for divisor in divisors if last < divisor <= size]
    return below[-1] if below else next((divisor for divisor in divisors if divisor > last), last)
