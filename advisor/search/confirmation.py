"""The last word: finalists measured again in a fresh process, interleaved, then the tail.

What is still open then takes further turns, as long as there is time.
"""

from __future__ import annotations

import msgspec

from ...records import TrialRequest
from ..choose.decision import choose
from ..choose.finalists import FINALIST_ROUNDS, best_of, finalists, readings_of, rounds_of
from ..measured.measurements import Measurements
from ..measured.turn_sizes import field, have_met, long_pair
from . import at_once, clean_search
from .cost import Budget
from .requests import fit_request, timed_request
from .turns_plan import comparison, long_pair_again

MAX_CONFIRMATIONS = 12
MAX_ONCE_MORE = 4
"""Further comparisons of two sizes that the noise does not tell apart. The width of an interval
falls with the root of the rounds, five times as many make it less than half: what that leaves open
is close."""
STARTS_KEPT = 2
"""Starts of a process that the end of the run keeps time for: the change is checked in one."""

_AGAIN = "finalists again, interleaved, in a fresh process"


def next_clean_size(measurements: Measurements) -> TrialRequest | None:
    """A clean size near the best to try when a search for speed is over."""
    return clean_search.next_clean(measurements, best_of(measurements))


def next_confirmation(measurements: Measurements, budget: Budget) -> TrialRequest | None:
    """The next trial of the confirmation, `None` when it is complete."""
    sizes = finalists(measurements)
    if not sizes or _nothing_to_confirm(measurements, sizes):
        return None
    if measurements.script.process_per_size:
        together = at_once.next_at_once(measurements, budget, sizes)
        if together is not None or at_once.has_met(measurements, sizes[0]):
            return together
    sizes = _with_own(measurements, sizes)
    series = measurements.confirmations
    counts = {size: rounds_of(series, size) for size in sizes}
    turns = _in_turn(measurements, sizes) if all(counts.values()) else None
    turns = None if turns is None else budget.within(turns, budget.left_s)
    if turns is not None:
        return turns
    met = have_met(measurements, sizes)
    rounds = FINALIST_ROUNDS if len(sizes) > 1 and not met else 1
    trials = measurements.record.trials
    if len([trial for trial in trials if trial.purpose == "confirm"]) >= MAX_CONFIRMATIONS:
        return None
    apart = not _graphs_fit_together(measurements, sizes)
    # Two steps show whether it fits; only where sizes were timed is there a time to confirm.
    only_fits = measurements.goal.kind == "memory" and not measurements.goal.sizes
    wanting = [
        _confirming(
            fit_request(size, _AGAIN)
            if only_fits
            else msgspec.structs.replace(timed_request(measurements, size, _AGAIN), profile=False),
            fresh=not series or apart or trials[-1].worker != series[-1].worker,
        )
        for size in sizes
        if counts[size] < rounds
    ]
    # Once each within all the time there is; further rounds are worth what the budget has left.
    wanting = [
        request
        for request in wanting
        if budget.trial_s(request)
        <= (budget.left_s if counts[request.batch_size] else budget.last_s)
    ]
    # In turn also where trials are disturbed: neighbours are compared.
    return min(
        wanting, key=lambda request: len(readings_of(series, request.batch_size)), default=None
    )


def _graphs_fit_together(measurements: Measurements, sizes: tuple[int, ...]) -> bool:
    """Whether the pools of captured graphs leave room for all of them in one process."""
    target, memory = measurements.target_bytes, measurements.trusted_memory
    if target is None or not measurements.captures_graphs:
        return True
    return sum(memory[size].peak_bytes for size in sizes if size in memory) <= target


def _with_own(measurements: Measurements, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The finalists, with the script's own size for a rival where it has met the first nowhere.

    On a CPU sizes that were timed apart differ by what the machine wanders. What steps are too long
    to take turns would find out in the fresh process about the rival, it must about the own size:
    without that none is recommended.
    """
    own, able = measurements.own_size, field(measurements)
    device = measurements.record.device
    if own is None or own in sizes or device is None or device.kind != "cpu":
        return sizes
    # Long steps met in few rounds.
    met = long_pair(measurements).keys() != {sizes[0], own} and any(
        {sizes[0], own} <= set(turns.sizes) for turns in measurements.turns
    )
    can_meet = {sizes[0], own} <= set(able)
    timed = measurements.best_timed
    if met or can_meet or not {sizes[0], own} <= set(timed) or not measurements.usable(own):
        return sizes
    return sizes[0], own


def _nothing_to_confirm(measurements: Measurements, sizes: tuple[int, ...]) -> bool:
    """Whether the script's own size is all that was timed: then nothing is going to change."""
    return sizes == (measurements.own_size,) and set(measurements.best_timed) == set(sizes)


def _confirming(request: TrialRequest, *, fresh: bool) -> TrialRequest:
    return msgspec.structs.replace(request, purpose="confirm", fresh_process=fresh)


def _in_turn(measurements: Measurements, sizes: tuple[int, ...]) -> TrialRequest | None:
    """The finalists in turn, where they may and have not yet."""
    own = measurements.own_size
    able = field(measurements)
    if measurements.goal.kind == "memory":
        return None  # sizes alone are compared
    if long_pair(measurements).keys() == {*sizes, own}:
        return long_pair_again(measurements)
    met = any({sizes[0], own} <= set(turns.sizes) for turns in measurements.search_turns)
    if met and not set(sizes) <= set(able):
        return None  # the time is better spent on the rival, which takes no turns
    wanted = sizes if own is None else (*sizes, own)
    sizes = tuple(dict.fromkeys(size for size in wanted if size in able))
    if have_met(measurements, sizes):
        return None
    return comparison(measurements, sizes, "finalists in turn", purpose="confirm")


def next_tail(measurements: Measurements, budget: Budget) -> TrialRequest | None:
    """A step of the real length of the epoch's last batch at the recommended size, if it has one.

    It is made once. Where the length is unknown and BatchNorm could meet a single sample, it is of
    one. Beside captured graphs of the recommended size it must fit, and of no other: that size then
    runs first.
    """
    size = choose(measurements, measurements.goal).size
    if size is None:
        return None
    left = measurements.last_batch(size)
    if left is None and measurements.script.has_batch_norm:
        left = 1  # how the epoch ends is unknown: with one sample, at worst
    if left is None or left in (0, size):
        return None
    if any(
        trial.purpose == "tail" and trial.batch_size == left for trial in measurements.record.trials
    ):
        return None
    if measurements.captures_graphs and not _ran_by_itself(measurements, size):
        first = fit_request(size, "its graphs, then a step of the last batch's length")
        first = msgspec.structs.replace(first, fresh_process=True)
        return first if budget.trial_s(first) <= budget.left_s else None
    series = measurements.confirmations
    fresh = not measurements.captures_graphs and (
        not series or measurements.record.trials[-1].worker != series[-1].worker
    )
    request = TrialRequest(
        batch_size=left,
        kind="fit",
        purpose="tail",
        fresh_process=fresh,
        reason="a step of the last batch's length",
    )
    return request if budget.trial_s(request) <= budget.last_s else None


def next_left_open(measurements: Measurements, budget: Budget) -> TrialRequest | None:
    """Two sizes that the noise does not tell apart once more in turn, when all else is measured.

    They are the size to recommend and one that may be much faster, or the script's own and the one
    that the goal would choose.
    """
    goal = measurements.goal
    if goal.kind not in ("knee", "throughput") or measurements.script.process_per_size:
        return None
    decision = choose(measurements, goal)
    if decision.against is not None:
        other: int | None = decision.against.size
    else:
        other = decision.considered if decision.standing == "too noisy" else None
    if decision.size is None or other is None:
        return None
    pair = {decision.size, other}
    again = [turns for turns in measurements.confirmed_turns if set(turns.sizes) == pair]
    if len(again) >= MAX_ONCE_MORE:
        return None
    why = f"{decision.size} and {other} once more, in turn: which is faster is open"
    request = comparison(measurements, pair, why, purpose="confirm")
    if request is None:
        return None
    kept_s = STARTS_KEPT * measurements.script.setup_s
    return budget.within(request, min(budget.left_s, budget.last_s - kept_s))


def _ran_by_itself(measurements: Measurements, size: int) -> bool:
    """Whether the process of the last trial lives and has run no other size."""
    trials = measurements.record.trials
    last = trials[-1]
    return last.ran and {trial.batch_size for trial in trials if trial.worker == last.worker} == {
        size
    }
