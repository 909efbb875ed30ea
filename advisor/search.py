"""What to run next: a pure function of the record.

The same record gives the same answer, which is what lets a run be resumed and several ranks
agree. Time is no exception: what was spent stands in the record.

    knee, throughput:  native/8, native, then growth up to x4 ── refine the knee ── confirm ── tail
    memory:            native, then a guarded secant on peak memory ── confirm ── tail
    --sizes:           these ── confirm ── tail
"""

from __future__ import annotations

import msgspec

from ..records import RunRecord, TrialRequest
from . import confirm, knee_search, largest
from .cost import (
    BUDGET_SPENT,
    FIT_STEPS,
    OVERRUN,
    RESERVE_TRIALS,
    TIMED_STEPS,
    Budget,
    has_long_steps,
    step_plan,
)
from .energy import energy_measured, why_not
from .facts import (
    failed,
    over_target,
    ran,
    searched,
    searched_trials,
    smallest_bad,
    target_bytes,
)
from .graph_pools import captures_graphs, may_be_tried_alone, others_bytes
from .requests import fit_request, timed_request
from .sizes import allowed, largest_allowed, smallest_allowed

MAX_OTHER_FAILURES = 2
"""Failures that are not about memory (exceptions, crashes, hangs) after which a run gives up."""
TIMED_SIZES = 7
FIT_SIZES = 6
"""Sizes that a search takes as a rule."""


class Done(msgspec.Struct, frozen=True):
    """Nothing more to run, and why."""

    reason: str


def next_trial(record: RunRecord) -> TrialRequest | Done:
    """The next size to run, or `Done`.

    The record must hold a discovery.
    """
    budget = Budget(record)
    stop = _must_stop(record)
    if stop is not None:
        return Done(stop)
    request = _search(record, budget)
    if isinstance(request, TrialRequest) and budget.allows(request):
        return request
    out_of_time = isinstance(request, TrialRequest)
    last = confirm.next_confirmation(record, budget) or confirm.next_tail(record, budget)
    if last is not None:
        return last
    if out_of_time:
        return Done(BUDGET_SPENT)
    return Done(request if isinstance(request, str) else "all is measured")


class Expected(msgspec.Struct, frozen=True):
    """What a search takes, roughly, said before it starts.

    Attributes:
        num_sizes, num_steps: as a rule; fewer sizes where the budget has no more.
        window_s: of one size, by the script's own step time; `None` where that is unknown.
        fits: whether the budget has time for as many sizes as a search takes as a rule.
        enough_s: a budget that lets two sizes be compared, where this one does not.
    """

    num_sizes: int
    num_steps: int
    window_s: float | None = None
    fits: bool = True
    enough_s: float | None = None


def expected(record: RunRecord) -> Expected:
    """An estimate from the step time that was seen while the training loop was found."""
    discovery = record.discovery
    each = 1 if discovery is None else discovery.pool * discovery.steps_per_batch
    if record.goal.kind == "memory":
        return Expected(FIT_SIZES, FIT_SIZES * FIT_STEPS * each)
    usual = len(record.goal.sizes) or TIMED_SIZES
    steps = (usual + RESERVE_TRIALS) * TIMED_STEPS * each
    if discovery is None or discovery.native_step_s is None:
        return Expected(usual, steps)
    budget_s = record.goal.budget_s
    step_s = Budget(record).step_s(discovery.native_batch_size)
    num_steps = step_plan(step_s, budget_s).num_steps
    window_s = num_steps * step_s
    if window_s * usual <= budget_s:
        return Expected(usual, steps, window_s)
    fitting = min(usual, int(budget_s / window_s))
    enough_s = None if fitting >= 2 else OVERRUN * 2 * window_s
    return Expected(fitting, fitting * num_steps * each, window_s, fits=False, enough_s=enough_s)


def _must_stop(record: RunRecord) -> str | None:
    if record.goal.kind == "energy" and searched(record) and not energy_measured(record):
        return why_not(record)
    bad = failed(record)
    if bad and bad[-1].outcome == "script_ended":
        return f"{bad[-1].detail}: too few for another window"
    if not ran(record) and any(
        one.batch_size == 1 and one.outcome == "out_of_memory" for one in bad
    ):
        return "nothing fits: batch 1 failed"
    others = [one for one in bad if one.outcome != "out_of_memory"]
    own = record.discovery.native_batch_size if record.discovery is not None else None
    own_failed = any(one.batch_size == own for one in others) and own not in {
        one.batch_size for one in ran(record)
    }
    if others and (len(others) >= MAX_OTHER_FAILURES or own_failed):
        return f"batch {others[-1].batch_size} failed: {others[-1].detail}"
    return None


def _search(record: RunRecord, budget: Budget) -> TrialRequest | str:
    """The next search trial, or why the search is over."""
    alone = _alone(record)
    if alone is not None and budget.allows(alone):
        return alone
    if record.goal.sizes:
        return _listed(record)
    first = _first(record)
    if first is not None:
        return first
    if record.goal.kind == "memory":
        found = largest.next_size(record, budget)
    else:
        found = knee_search.next_size(record, budget)
    return found if isinstance(found, TrialRequest) else confirm.next_clean_size(record) or found


def _alone(record: RunRecord) -> TrialRequest | None:
    """A size that may be too large only beside the captured graphs of others, by itself."""
    if not captures_graphs(record):
        return None
    refused = [one for one in failed(record) if one.outcome == "out_of_memory"]
    smallest = min((one.batch_size for one in refused), default=None)
    doubtful = [one for one in refused if one.batch_size == smallest]
    target = target_bytes(record)
    for one in ran(record):
        others = others_bytes(record, one)
        peak = one.memory.peak_bytes if one.memory is not None else 0
        if target is not None and others and peak - others <= target < peak:
            doubtful.append(one)
    for one in doubtful:
        if may_be_tried_alone(record, one):
            reason = "too much beside the graphs of other sizes: in a process of its own"
            timed = one.kind == "timed" and record.goal.kind != "memory"
            request = (
                timed_request(record, one.batch_size, reason)
                if timed
                else fit_request(one.batch_size, reason)
            )
            return msgspec.structs.replace(request, fresh_process=True)
    return None


def _listed(record: RunRecord) -> TrialRequest | str:
    tried = {one.batch_size for one in record.trials if one.purpose == "search"}
    refused = [one.batch_size for one in failed(record) if one.outcome == "out_of_memory"]
    for size in sorted(set(record.goal.sizes)):
        if size not in tried and (not refused or size < min(refused)):
            return timed_request(record, size, "asked for by --sizes")
    return "all sizes of --sizes were tried"


def _first(record: RunRecord) -> TrialRequest | None:
    """The sizes that every search begins with, smallest first."""
    assert record.discovery is not None
    native = _bounded(record, record.discovery.native_batch_size)
    start = _bounded(record, record.goal.start) if record.goal.start else native
    failures = failed(record)
    bad = min((one.batch_size for one in failures), default=None)
    if bad is not None and not ran(record):
        if failures[-1].outcome != "out_of_memory" and bad != native:
            return timed_request(record, native, f"the script's own size: {bad} failed otherwise")
        smaller = allowed(record, max(1, bad // 4))
        return timed_request(record, smaller, f"below {bad}, which failed")
    timed = {one.batch_size for one in searched_trials(record)}
    seen = {*timed, *(one.batch_size for one in failures)}
    least = smallest_allowed(record)
    over = [one for one in timed if over_target(record, one)]
    if record.goal.kind != "memory" and over and not searched(record):
        smaller = allowed(record, max(least, min(seen) // 4))
        if smaller not in seen:
            return timed_request(record, smaller, f"below {min(over)}: that takes too much memory")
    refused = smallest_bad(record)
    bad = min([*over, *([] if refused is None else [refused])], default=None)
    wanted = [(start, "the script's own size" if start == native else "asked for by --start")]
    if start != native:
        wanted.append((native, "the script's own size, to compare with"))
    long = has_long_steps(Budget(record).step_s(native), record.goal.budget_s)
    if record.goal.kind == "knee" and not record.goal.start and native >= 4 and not long:
        small = max(least, native // 8)
        wanted.insert(0, (allowed(record, small), "a small size, for the fixed cost"))
    if record.goal.kind == "memory":  # two steps are enough to see the memory
        seen |= {one.batch_size for one in ran(record)}
    for size, reason in wanted:
        if size not in seen and (bad is None or size < bad):
            if record.goal.kind == "memory":
                return fit_request(size, reason)
            return timed_request(record, size, reason)
    return None


def _bounded(record: RunRecord, size: int) -> int:
    """A size that was not rounded, within bounds; what keeps the effective batch divides it."""
    if record.goal.keep_effective_batch:
        return allowed(record, size)
    return min(largest_allowed(record), size)
