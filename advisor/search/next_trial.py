"""Decides what to run next: a pure function of the record.

The same record gives the same answer, which is what lets a run be resumed and several ranks
agree. Time is no exception: what was spent stands in the record.

    knee, throughput:  native, x4 of it ── in turn ── native/8 ── growth by x4 ── refine ── confirm
                       ── tail ── what is open once more
    (padded batches:   before the growth, halves of the smallest size, while they may be faster)
    (lengths differ:   windows at chosen lengths before the growth, which they bound)
    memory:            native, then a guarded secant on peak memory ── confirm ── tail
    --sizes:           these ── confirm ── tail
"""

from __future__ import annotations

from itertools import accumulate

import msgspec

from ...records import DeviceInfo, RunRecord, Trial, TrialRequest
from ..measured.energy import energy_measured, why_not
from ..measured.graph_pools import may_be_tried_alone, others_bytes
from ..measured.kernel_limits import kernel_limit_of
from ..measured.measurements import Measurements
from ..measured.memory_prior import prior_of
from ..measured.multiples import REFUSALS
from ..measured.refused import last_not_of_the_size, request_of
from ..measured.sizes import allowed, largest_allowed, smallest_allowed
from ..measured.thresholds import BUDGET_SPENT
from . import confirmation, knee_search, largest_size, length_windows
from .cost import (
    RESERVE_SHARE,
    RESERVE_TRIALS,
    TIMED_STEPS,
    USUAL_FIT_STEPS,
    Budget,
    budget_of,
    step_plan,
)
from .requests import fit_request, timed_request

MAX_OTHER_FAILURES = 2
"""Failures that are not about memory (exceptions, crashes, hangs) after which a run gives up."""
MAX_REFUSALS = 6
"""Sizes that a script may turn down beside others that run, before the search is over."""
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
    measurements = Measurements.of(record)
    budget = budget_of(measurements)
    stop = _must_stop(measurements)
    if stop is not None:
        return Done(stop)
    request = _search(measurements, budget)
    if isinstance(request, TrialRequest):
        if budget.allows(request):
            return request
        fewer = budget.within(request, budget.left_s - budget.reserve_s())
        if fewer is not None:
            return fewer
    out_of_time = isinstance(request, TrialRequest)
    for next_one in (
        confirmation.next_confirmation,
        confirmation.next_tail,
        confirmation.next_left_open,
    ):
        last = next_one(measurements, budget)
        if last is not None:
            return last
    if out_of_time:
        return Done(BUDGET_SPENT)
    return Done(request if isinstance(request, str) else "all is measured")


class Expected(msgspec.Struct, frozen=True):
    """A rough forecast of the search, said before it starts.

    Attributes:
        num_sizes, num_steps: as a rule; fewer sizes where the budget has no more.
        least: sizes if larger ones take longer in proportion; else their steps take as long.
        window_s: of one size, by the script's own step time; `None` where that is unknown.
        fits: whether the budget has time for as many sizes as a search takes as a rule.
        enough_s: a budget that lets two sizes be compared, where this one does not.
    """

    num_sizes: int
    num_steps: int
    least: int
    window_s: float | None = None
    fits: bool = True
    enough_s: float | None = None


def expected(record: RunRecord) -> Expected:
    """An estimate from the step time that was seen while the training loop was found."""
    measurements = Measurements.of(record)
    script, own = measurements.script, measurements.script.first_size
    each = script.pool * script.steps_per_batch
    if measurements.goal.kind == "memory":
        return Expected(FIT_SIZES, FIT_SIZES * USUAL_FIT_STEPS * each, FIT_SIZES)
    usual = len(measurements.goal.sizes) or TIMED_SIZES
    steps = (usual + RESERVE_TRIALS) * TIMED_STEPS * each
    if own is None or script.native_step_s is None:
        return Expected(usual, steps, usual)
    budget = budget_of(measurements)
    budget_s, step_s = measurements.goal.budget_s, budget.step_s(own)
    room_s = budget.left_s - RESERVE_SHARE * budget_s
    if measurements.goal.sizes:
        grown = [max(1.0, size / own) for size in sorted(measurements.goal.sizes)]
    else:
        grown = [knee_search.KNEE_GROWTH**number for number in range(usual)]
    num_steps = step_plan(step_s, budget_s).num_steps
    window_s = num_steps * step_s
    grown_s = [factor * step_s for factor in grown]
    windows_s = [step_plan(each_s, budget_s).num_steps * each_s for each_s in grown_s]
    start_s = script.setup_s if script.process_per_size else 0.0
    room_s += start_s  # the first process runs already
    window_s += start_s
    least = max(
        1,
        sum(spent_s <= room_s for spent_s in accumulate(each_s + start_s for each_s in windows_s)),
    )
    if window_s * usual <= room_s:
        return Expected(usual, steps, least, window_s)
    fitting = max(1, least, min(usual, int(room_s / window_s)))
    both_s = (window_s - start_s) * (1 + (knee_search.LEAST_KNEE_GROWTH if len(grown) > 1 else 0))
    both_s += start_s
    spent_s = budget_s - budget.left_s
    enough_s = None if fitting >= 2 else (spent_s + both_s) / (1 - RESERVE_SHARE)
    return Expected(
        fitting, fitting * num_steps * each, least, window_s, fits=False, enough_s=enough_s
    )


def _must_stop(measurements: Measurements) -> str | None:
    for_energy = measurements.goal.kind == "energy"
    if for_energy and measurements.searched and not energy_measured(measurements):
        return why_not(measurements)
    bad = measurements.failed
    elsewhere = last_not_of_the_size(measurements.record)
    if elsewhere:
        return elsewhere
    if bad and not measurements.ran and _is_absurd(bad[-1], measurements.record.device):
        return f"batch {bad[-1].batch_size} asks for more than any size could have"
    if bad and bad[-1].outcome == "script_ended":
        return f"{bad[-1].detail}: too few for another window"
    smallest = min(measurements.sizes_that_ran, default=None)
    others = [
        failure
        for failure in bad
        if failure.outcome != "out_of_memory"
        and kernel_limit_of(
            failure, smaller_ran=smallest is not None and smallest < failure.batch_size
        )
        is None
    ]
    own = measurements.own_size
    own_failed = (
        any(failure.batch_size == own for failure in others)
        and own not in measurements.sizes_that_ran
    )
    unexplained = [failure for failure in others if _is_unexplained(measurements, failure)]
    if others and (own_failed or len(unexplained) >= MAX_OTHER_FAILURES):
        return f"batch {others[-1].batch_size} failed: {others[-1].detail}"
    if bad and not measurements.ran and _after_failures(measurements) is None:
        least = min(filter(_is_refusal, bad), key=lambda trial: trial.batch_size, default=None)
        if least is not None:
            return f"nothing fits: batch {least.batch_size} failed"
        return f"batch {bad[-1].batch_size} failed: {bad[-1].detail}"
    return None


def _is_unexplained(measurements: Measurements, failure: Trial) -> bool:
    """Whether a failure tells of a script that fails anyhow.

    It does not beside sizes that run: then it may be that only multiples are taken, or none so
    small, or none so large.
    """
    ran = measurements.sizes_that_ran
    beside = bool(ran) and not min(ran) <= failure.batch_size <= max(ran)
    return not beside and not measurements.multiples.explain(failure)


def _is_absurd(failure: Trial, device: DeviceInfo | None) -> bool:
    request = request_of(failure.detail) if failure.outcome == "out_of_memory" else None
    device_bytes = None if device is None else device.total_bytes
    return request is not None and request.is_absurd(failure.batch_size, device_bytes)


def _search(measurements: Measurements, budget: Budget) -> TrialRequest | str:
    """The next search trial, or why the search is over."""
    alone = _alone(measurements)
    if alone is not None and budget.allows(alone):
        return alone
    refused = [failure for failure in measurements.failed if failure.outcome in REFUSALS]
    if len(refused) >= MAX_REFUSALS:
        return f"the script turned {len(refused)} sizes down"
    if measurements.goal.sizes:
        listed = _listed(measurements)
        window = length_windows.next_window(measurements, budget)
        return window if window is not None and isinstance(listed, str) else listed
    first = _first(measurements)
    if first is not None:
        return first
    window = length_windows.next_window(measurements, budget)
    if window is not None:
        return window
    if measurements.goal.kind == "memory":
        answer = largest_size.next_size(measurements, budget)
    else:
        answer = knee_search.next_size(measurements, budget)
    return (
        answer
        if isinstance(answer, TrialRequest)
        else confirmation.next_clean_size(measurements) or answer
    )


def _alone(measurements: Measurements) -> TrialRequest | None:
    """A size that may be too large only beside the captured graphs of others, by itself."""
    if not measurements.captures_graphs:
        return None
    refused = [failure for failure in measurements.failed if failure.outcome == "out_of_memory"]
    smallest = min((failure.batch_size for failure in refused), default=None)
    doubtful = [failure for failure in refused if failure.batch_size == smallest]
    target = measurements.target_bytes
    for trial in measurements.ran:
        others = others_bytes(measurements.record.trials, trial, measurements.own_size)
        peak = trial.memory.peak_bytes if trial.memory is not None else 0
        if target is not None and others and peak - others <= target < peak:
            doubtful.append(trial)
    for trial in doubtful:
        if may_be_tried_alone(measurements.record.trials, trial):
            reason = "too much beside the graphs of other sizes: in a process of its own"
            timed = trial.kind == "timed" and measurements.goal.kind != "memory"
            request = (
                timed_request(measurements, trial.batch_size, reason)
                if timed
                else fit_request(trial.batch_size, reason)
            )
            return msgspec.structs.replace(request, fresh_process=True)
    return None


def _listed(measurements: Measurements) -> TrialRequest | str:
    tried = {trial.batch_size for trial in measurements.record.trials if trial.purpose == "search"}
    refused = [
        failure.batch_size for failure in measurements.failed if failure.outcome == "out_of_memory"
    ]
    for size in sorted(set(measurements.goal.sizes)):
        if size not in tried and (not refused or size < min(refused)):
            return timed_request(measurements, size, "asked for by --sizes")
    return "all sizes of --sizes were tried"


def _first(measurements: Measurements) -> TrialRequest | None:
    """The sizes that every search begins with, smallest first."""
    if measurements.failed and not measurements.ran:
        return _after_failures(measurements)
    goal, failures = measurements.goal, measurements.failed
    native, native_is = _native(measurements)
    start = _bounded(measurements, goal.start) if goal.start else native
    timed = {trial.batch_size for trial in measurements.searched_trials}
    seen = {*timed, *(failure.batch_size for failure in failures)}
    least = smallest_allowed(measurements)
    over = [timed_size for timed_size in timed if measurements.over_target(timed_size)]
    if goal.kind != "memory" and over and not measurements.searched:
        smaller = allowed(measurements, max(least, min(seen) // 4))
        if smaller not in seen:
            why = f"below {min(over)}: that takes too much memory"
            return timed_request(measurements, smaller, why)
    refused = measurements.smallest_bad
    bad = min([*over, *([] if refused is None else [refused])], default=None)
    wanted = [(start, native_is if start == native else "asked for by --start")]
    if start != native and measurements.own_size is not None:
        wanted.append((native, "the script's own size, to compare with"))
    if goal.kind == "memory":
        seen |= measurements.sizes_that_ran
    for size, reason in wanted:
        if size not in seen and (bad is None or size < bad):
            return _request(measurements, size, reason)
    return None


def _after_failures(measurements: Measurements) -> TrialRequest | None:
    """The next size where none ran, between those that failed; `None` where none is left.

    Memory that was refused bounds it from above, another failure at a smaller size from below.
    """
    failed = {trial.batch_size for trial in measurements.failed}
    refused = {trial.batch_size for trial in measurements.failed if _is_refusal(trial)}
    high = min(refused or failed)
    low = max((size for size in failed if size < high), default=0)
    last, (native, native_is) = measurements.failed[-1], _native(measurements)
    if not (_is_refusal(last) or native in failed or (refused and native > high)):
        why = f"{native_is}: {last.batch_size} failed otherwise"
        return _request(measurements, native, why)
    prior, target = prior_of(measurements), measurements.target_bytes
    predicted = [] if prior is None or target is None else [prior.first_size(target)]
    least = min(smallest_allowed(measurements), high - 1)
    for guess in (*predicted, high // 4, (low + high) // 2):
        size = allowed(measurements, max(least, guess))
        if low < size < high:
            return _request(measurements, size, f"below {high}, which failed")
    return None


def _request(measurements: Measurements, size: int, reason: str) -> TrialRequest:
    """A trial of a size; two steps are enough to see the memory."""
    if measurements.goal.kind == "memory":
        return fit_request(size, reason)
    return timed_request(measurements, size, reason)


def _is_refusal(trial: Trial) -> bool:
    return trial.outcome == "out_of_memory"


def _native(measurements: Measurements) -> tuple[int, str]:
    """The size of the first process within bounds, and what it is."""
    first = measurements.script.first_size
    assert first is not None
    known = measurements.own_size is not None
    return _bounded(measurements, first), "the script's own size" if known else "a first size"


def _bounded(measurements: Measurements, size: int) -> int:
    """A size that was not rounded, within bounds; what keeps the effective batch divides it, and
    it is a multiple where these are asked for.
    """
    goal = measurements.goal
    if goal.keep_effective_batch or size % goal.multiple_of:
        return allowed(measurements, size)
    return min(largest_allowed(measurements), size)
