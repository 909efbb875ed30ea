"""What a trial will cost, and whether the budget has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from ...records import Trial, TrialRequest, TurnsPlan
from ...records.request import USUAL_TIMED_STEPS
from ..measured.laws import fit_time
from ..measured.measurements import Measurements
from ..measured.once import once
from ..measured.turn_sizes import MIN_ROUNDS, only_beside_others, waiting

TIMED_STEPS = 14
"""Steps of a timed trial, warm-up included, as a rule."""
PROFILED_STEPS = 5
"""Steps of a profiled window with the profiler's own work, as a rule."""
FULL_STEPS = 9
"""The fewest steps of a trial that was not made shorter; as a rule it takes TIMED_STEPS."""
USUAL_FIT_STEPS = 3
"""Steps of a fit trial as a rule: two that count, and one before the size arrives."""
CLOSING_S, CLOSING_SHARE = 0.5, 0.02
"""Kept for the end of the last process, beside busy neighbours too; a share of short budgets."""
TRIAL_SHARE = 1 / 8
"""A trial takes no more than this share of the budget where fewer steps allow it."""
RESERVE_SHARE = 0.4
"""No more of the budget is kept back: a second size is worth more than a confirmation of one."""
STILL_PAYS = 1.15
"""The largest size that was timed is so many times as fast as all others, or faster: a still larger
one is worth more than a confirmation."""
PROFILE_SHARE = 1 / 4
"""The trial that has the run's only trace may take so much."""
RESERVE_TRIALS = 4
"""Timed trials that are kept back for the confirmation."""


class StepPlan(NamedTuple):
    """The fewest steps of a timed trial.

    Attributes:
        profile: whether profiled steps follow.
    """

    num_warmup: int
    num_timed: int
    profile: bool

    @property
    def num_steps(self) -> int:
        """All of them."""
        return self.num_warmup + self.num_timed + (PROFILED_STEPS if self.profile else 0)


SHORTEST_PLAN = StepPlan(1, 3, profile=False)
_PLANS = (
    StepPlan(3, USUAL_TIMED_STEPS, profile=True),
    StepPlan(3, USUAL_TIMED_STEPS, profile=False),
    StepPlan(2, 4, profile=False),
    SHORTEST_PLAN,
)
"""Plans of a trial, from the best to the shortest."""


def step_plan(step_s: float, budget_s: float) -> StepPlan:
    """The best plan that a step of this length leaves room for, else the shortest."""
    room_s = TRIAL_SHARE * budget_s
    fitting = (plan for plan in _PLANS if plan.num_steps * step_s <= room_s)
    return next(fitting, SHORTEST_PLAN)


def has_long_steps(step_s: float, budget_s: float) -> bool:
    """Whether steps are so long that a trial must do with fewer."""
    return step_plan(step_s, budget_s) is not _PLANS[0]


def has_time_for_a_profile(step_s: float, budget_s: float) -> bool:
    """Whether profiled steps after the shortest trial leave most of the budget."""
    return (SHORTEST_PLAN.num_steps + PROFILED_STEPS) * step_s <= PROFILE_SHARE * budget_s


def end_s(budget_s: float) -> float:
    """Seconds of search after which nothing runs any more, the confirmation included."""
    return budget_s - min(CLOSING_S, CLOSING_SHARE * budget_s)


def turns_s(plan: TurnsPlan, step_s: Callable[[int], float]) -> float:
    """Estimated seconds of sizes that take turns.

    Args:
        step_s: seconds of what lies between two changes of size, by size.
    """
    turns = zip(plan.sizes, plan.num_steps, strict=True)
    round_s = sum((plan.num_warmup_steps + num) * step_s(size) for size, num in turns)
    return plan.num_rounds * round_s


class Budget:
    """The wall time that is left, and estimates of what things take."""

    def __init__(self, measurements: Measurements) -> None:
        goal, spent_s = measurements.goal, measurements.record.search_s
        self._goal = goal
        self._script = measurements.script
        self._times = {
            size: trial.step_s.median
            for size, trial in measurements.best_timed.items()
            if trial.step_s is not None
        }
        self._waits = {
            size: trial.step_s.median - trial.step_s.low
            for size, trial in measurements.best_timed.items()
            if trial.step_s is not None and trial.contended
        }
        self._law = fit_time(self._times)
        self._beside_others = only_beside_others(measurements)
        # Each size has met the script's own by then, which says more than its window.
        self._takes_turns_at_once = bool(waiting(measurements))
        self.left_s = goal.budget_s - spent_s
        self.last_s = end_s(goal.budget_s) - spent_s
        """Seconds until everything ends, the confirmation too."""
        self._stall_s = _stall_s(measurements.record.trials)
        lasted_s = [trial.elapsed_s for trial in measurements.ran if trial.kind == "timed"]
        # The first one also pays for what is made once.
        self._least_step_s = min(lasted_s) / TIMED_STEPS if len(lasted_s) > 1 else 0.0
        """Seconds that a step of a timed trial cost at least: timing goes on until it is sure."""
        self._fits_s = {
            trial.batch_size: trial.elapsed_s
            for trial in measurements.ran
            if trial.kind == "fit" and trial.elapsed_s
        }

    def step_s(self, size: int) -> float:
        """Estimated seconds per counted step: as many optimizer steps as a pool has batches for."""
        return self._one_step_s(size) * self._script.pool

    def _one_step_s(self, size: int) -> float:
        """The law, else in proportion to a measured size.

        What threads wait for a core, and for each other meanwhile, comes once for each operation,
        whatever its size: beside three busy processes a step of 64 took 1.03 s, 0.78 s of them
        waiting, and one of 256 took 1.22 s, 0.93 s of them waiting, where 4 ms and 5 ms are usual
        (a perceptron on two cores of an AMD EPYC).
        """
        if not isinstance(self._law, str):
            return self._law.step_s(size)
        if self._times:
            nearest = min(self._times, key=lambda timed_size: (abs(timed_size - size), timed_size))
            waited_s = self._waits.get(nearest, 0.0)
            return waited_s + (self._times[nearest] - waited_s) * max(1.0, size / nearest)
        own, step_s = self._script.first_size, self._script.native_step_s
        if own is None or step_s is None:
            return 0.0
        return step_s * max(1.0, size / max(1, own))

    def trial_s(self, request: TrialRequest) -> float:
        """Estimated seconds of a trial, and of the start of the process that it needs."""
        # Sizes that take turns have their processes by then.
        starts = request.fresh_process or (self._script.process_per_size and request.turns is None)
        return self.steps_s(request) + (self._script.setup_s if starts else 0.0)

    def steps_s(self, request: TrialRequest) -> float:
        """Estimated seconds of the steps of a trial."""
        if request.turns is not None:
            return turns_s(request.turns, self.step_s)
        steps = USUAL_FIT_STEPS
        step_s = self.step_s(request.batch_size)
        if request.kind == "fit":
            # What the same steps took before says more than the step of the script's own size,
            # which may have imported what torch imports late.
            made_s = self._fits_s.get(request.batch_size, steps * step_s)
            step_s = min(step_s, made_s / steps) + self._stall_s  # it makes all of them
        else:
            fewer = request.min_warmup_steps + request.min_timed_steps
            steps = TIMED_STEPS if fewer >= FULL_STEPS else fewer
        if request.profile:
            steps += PROFILED_STEPS
        if request.kind != "fit":
            step_s = max(step_s, self._least_step_s)
        return steps * step_s

    def within(self, request: TrialRequest, left_s: float) -> TrialRequest | None:
        """The request in so many seconds: a comparison in fewer rounds, `None` in too few."""
        return within(request, self.trial_s(request), left_s)

    def reserve_s(self) -> float:
        """Seconds kept back for confirming what was found: the two best sizes so far.

        None while a single size was timed, which nothing can confirm: a second one comes first.
        None either beside others, where a comparison of sizes in turn says more.
        """
        if self._beside_others or not self._times or self._script.first_size is None:
            return 0.0
        if len(self._times) == 1 and self._goal.kind != "memory":
            return 0.0
        if self._goal.kind == "memory":
            finalists = sorted(self._times)[-2:]
        else:
            finalists = sorted(self._times, key=lambda size: size / self._times[size])[-2:]
        budget_s = self._goal.budget_s
        trials = sum(
            RESERVE_TRIALS
            / 2
            * max(step_s, self._least_step_s)
            * min(TIMED_STEPS, step_plan(step_s, budget_s).num_steps)
            for step_s in map(self.step_s, finalists)
        )
        apart = self._script.process_per_size
        whole_s = self._script.setup_s * (RESERVE_TRIALS if apart else 1) + trials
        return min(whole_s, RESERVE_SHARE * budget_s)

    def allows(self, request: TrialRequest) -> bool:
        """Whether a search trial leaves enough for the confirmation.

        While there is any time the first trials may, up to the one of the script's own size:
        without it there is nothing to compare with.
        """
        if self.left_s <= 0:
            return False
        own = self._script.own_size
        if not self._times or (request.batch_size == own and own not in self._times):
            return True
        if self._takes_turns_at_once and (request.turns is not None or self._still_pays(request)):
            return self.trial_s(request) <= self.left_s
        return self.trial_s(request) + self.reserve_s() <= self.left_s

    def _still_pays(self, request: TrialRequest) -> bool:
        """Whether a request is a step up after one that gained much."""
        *others, last = (size / step_s for size, step_s in sorted(self._times.items()))
        up = request.batch_size > max(self._times)
        return up and bool(others) and last >= STILL_PAYS * max(others)

    def has_room_beside(self, request: TrialRequest) -> bool:
        """Whether the budget has room for a trial that times no size, and for a second timed size
        after it."""
        alone = len(self._times) == 1 and self._goal.kind != "memory"
        kept_s = RESERVE_SHARE * self._goal.budget_s if alone else 0.0
        return self.allows(request) and self.trial_s(request) + kept_s <= self.left_s


def within(request: TrialRequest, cost_s: float, left_s: float) -> TrialRequest | None:
    """The request in so many seconds, given what it costs: a comparison in fewer rounds, `None` in
    too few."""
    turns = request.turns
    if cost_s <= left_s:
        return request
    if turns is None or turns.num_rounds * left_s < MIN_ROUNDS * cost_s:
        return None
    fewer = msgspec.structs.replace(turns, num_rounds=int(turns.num_rounds * left_s / cost_s))
    return msgspec.structs.replace(request, turns=fewer)


@once
def budget_of(measurements: Measurements) -> Budget:
    """The budget that a record has left."""
    return Budget(measurements)


def _stall_s(trials: Iterable[Trial]) -> float:
    """Seconds that a step of the run stalled on average."""
    qualities = [trial.quality for trial in trials if trial.quality is not None]
    num_steps = sum(quality.num_steps for quality in qualities)
    return sum(quality.stalled_s for quality in qualities) / max(1, num_steps)
