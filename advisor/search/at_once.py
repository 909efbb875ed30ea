"""Comparisons where each size has a process of its own: they live at once, and take turns.

In the search each size takes turns with the script's own as soon as it was timed by itself; those
of the confirmation have fresh processes.

A process that waits for its turn costs memory and no time. What the machine does meanwhile meets
all sizes of a round; processes that run one after the other meet it at different times, and on a
CPU their ratios are off by as much as it wanders.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ...records import Purpose, TrialRequest
from ..choose.decision import open_rival
from ..choose.finalists import readings_of
from ..measured.measurements import Measurements
from ..measured.turn_sizes import (
    COMPARISON_SHARE,
    MIN_ROUNDS,
    ONLY_COMPARISON_SHARE,
    have_met,
    may_live_at_once,
    timed_beside_others,
    waiting,
)
from .cost import Budget, turns_s, within
from .requests import timed_request
from .turns_plan import ROUNDS, asking, turns_of

TURN_AT_ONCE_S = 0.3
"""Seconds of a turn: after another process the caches are filled again first."""
ROUNDS_AT_ONCE = 10
"""Rounds of one comparison: each process has cost its start, a round costs a second."""


def next_at_once(
    measurements: Measurements, budget: Budget, sizes: Sequence[int]
) -> TrialRequest | None:
    """The next trial: each size by itself in its process, then all in turn.

    Args:
        sizes: the finalists, the one to recommend first.

    Returns:
        `None` where they cannot live at once, or all that there is time for was done.
    """
    together = _together(measurements, sizes)
    if timed_beside_others(measurements):  # a window takes long there, and says nothing
        return _first_fitting(measurements, budget, (together[:2], together))
    alone = [size for size in together if not readings_of(measurements.confirmations, size)]
    for size in alone:
        others = tuple(other for other in together if other != size)
        request = msgspec.structs.replace(
            timed_request(measurements, size, "finalists again, in a process of their own"),
            purpose="confirm",
            fresh_process=True,
            profile=False,
            beside=others,
        )
        first = together[: together.index(size) + 1]
        if budget.trial_s(request) + _least_s(measurements, first) <= budget.left_s:
            return request
    ready = tuple(size for size in together if size not in alone)
    return _first_fitting(measurements, budget, (ready, ready[:2]))


def next_in_search(measurements: Measurements) -> TrialRequest | None:
    """The size that was timed last, in turn with the script's own, whose process waits."""
    owns, trials = waiting(measurements), measurements.record.trials
    if not (owns and trials):
        return None
    last = trials[-1]
    sizes = (*owns, last.batch_size)
    alive = last.kind == "timed" and last.purpose == "search" and last.batch_size not in owns
    if not (alive and last.ran and may_live_at_once(measurements, sizes)):
        return None
    return _in_turn(measurements, sizes, "search", ROUNDS)[0]


def has_met(measurements: Measurements, size: int) -> bool:
    """Whether a size took turns with the script's own, or with any where it is that or was not
    timed."""
    return have_met(measurements, {size, *_own(measurements)})


def _own(measurements: Measurements) -> tuple[int, ...]:
    """The script's own size, where it can be compared."""
    own = measurements.own_size
    timed = own is not None and own in measurements.best_timed and measurements.usable(own)
    return (own,) if own is not None and timed else ()


def _together(measurements: Measurements, sizes: Sequence[int]) -> tuple[int, ...]:
    """The size to recommend, the script's own and the rival, as far as they may live at once.

    Once these have met, one that may still be much faster than the first is the rival.
    """
    if measurements.goal.kind not in ("knee", "throughput"):
        return ()  # another reading than a time decides
    owns = _own(measurements)
    several = [(sizes[0], *owns, *sizes[1:]), (sizes[0], *owns), tuple(sizes)]
    rival = open_rival(measurements, sizes[0])
    if rival is not None and has_met(measurements, sizes[0]):
        several.insert(0, (sizes[0], *owns, rival.size))
    for some in several:
        distinct = tuple(dict.fromkeys(some))
        if may_live_at_once(measurements, distinct):
            return distinct
    return ()


def _first_fitting(
    measurements: Measurements, budget: Budget, several: Iterable[Sequence[int]]
) -> TrialRequest | None:
    """The first of these that have not met, in as many rounds as there is time for."""
    ready = measurements.confirmed_sizes
    for sizes in several:
        if len(sizes) < 2 or have_met(measurements, sizes):
            continue
        turns, cost_s = _in_turn(measurements, sizes)
        starts_s = measurements.script.setup_s * len(set(sizes) - ready)
        fitting = within(turns, cost_s, budget.left_s - starts_s)
        if fitting is not None:
            return fitting
    return None


def _in_turn(
    measurements: Measurements,
    sizes: Iterable[int],
    purpose: Purpose = "confirm",
    rounds: int = ROUNDS_AT_ONCE,
) -> tuple[TrialRequest, float]:
    """The request, and the seconds that it takes by the fastest window of each size: one that
    others held up says little of a turn, which ends sooner beside them."""
    steps: dict[int, float] = {}
    for size in sorted(sizes):
        windows = [trial for trial in measurements.timed if trial.batch_size == size]
        steps[size] = min(trial.step_s.median for trial in windows if trial.step_s is not None)
    share = ONLY_COMPARISON_SHARE if timed_beside_others(measurements) else COMPARISON_SHARE
    most_s = share * measurements.goal.budget_s
    plan = turns_of(measurements, steps, TURN_AT_ONCE_S, rounds, most_s)
    what = "finalists" if purpose == "confirm" else ", ".join(map(str, sorted(steps)))
    request = asking(plan, f"{what} in turn, each in its process", purpose)
    return request, turns_s(plan, steps.__getitem__)


def _least_s(measurements: Measurements, sizes: Sequence[int]) -> float:
    """Seconds of the fewest rounds of these."""
    if len(sizes) < 2:
        return 0.0
    request, cost_s = _in_turn(measurements, sizes)
    assert request.turns is not None
    return cost_s * MIN_ROUNDS / request.turns.num_rounds
