"""What a trial will cost, and whether the budget has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..records import RunRecord, TrialRequest, TurnsPlan
from .facts import best_timed
from .laws import fit_time

TIMED_STEPS = 14
"""Steps of a timed trial, warm-up included, as a rule."""
PROFILED_STEPS = 5
"""Steps of a profiled window with the profiler's own work, as a rule."""
FULL_STEPS = 9
"""The fewest steps of a trial that was not made shorter; as a rule it takes TIMED_STEPS."""
FIT_STEPS = 3
BUDGET_SPENT = "the budget is spent"
"""Why a search that its budget cut short is over."""
OVERRUN = 1.2
"""The confirmation may end after this many times the budget, and nothing later."""
CLOSING_S, CLOSING_SHARE = 0.5, 0.02
"""Kept for the end of the last process, beside busy neighbours too; a share of short budgets."""
TRIAL_SHARE = 1 / 8
"""A trial takes no more than this share of the budget where fewer steps allow it."""
RESERVE_SHARE = 0.4
"""No more of the budget is kept back: a second size is worth more than a confirmation of one."""
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


_PLANS = (StepPlan(3, 6, True), StepPlan(3, 6, False), StepPlan(2, 4, False), StepPlan(1, 3, False))
"""From the best to the shortest."""


def step_plan(step_s: float, budget_s: float) -> StepPlan:
    """The best plan that a step of this length leaves room for, else the shortest."""
    room_s = TRIAL_SHARE * budget_s
    fitting = (plan for plan in _PLANS if plan.num_steps * step_s <= room_s)
    return next(fitting, _PLANS[-1])


def has_long_steps(step_s: float, budget_s: float) -> bool:
    """Whether steps are so long that a trial must do with fewer."""
    return step_plan(step_s, budget_s) is not _PLANS[0]


def has_time_for_a_profile(step_s: float, budget_s: float) -> bool:
    """Whether profiled steps after the shortest trial leave most of the budget."""
    return (_PLANS[-1].num_steps + PROFILED_STEPS) * step_s <= PROFILE_SHARE * budget_s


def end_s(budget_s: float) -> float:
    """Seconds of search after which nothing runs any more, the confirmation included."""
    return OVERRUN * budget_s - min(CLOSING_S, CLOSING_SHARE * budget_s)


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

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._times = {
            size: trial.step_s.median
            for size, trial in best_timed(record).items()
            if trial.step_s is not None
        }
        self._law = fit_time(self._times)
        self.left_s = record.goal.budget_s - record.search_s
        self.last_s = OVERRUN * record.goal.budget_s - record.search_s
        """Seconds until everything ends, the confirmation too."""

    def step_s(self, size: int) -> float:
        """Estimated seconds per counted step: as many optimizer steps as a pool has batches for."""
        discovery = self._record.discovery
        return self._one_step_s(size) * (discovery.pool if discovery is not None else 1)

    def _one_step_s(self, size: int) -> float:
        """The law, else in proportion to a measured size."""
        if not isinstance(self._law, str):
            return self._law.step_s(size)
        if self._times:
            nearest = min(self._times, key=lambda one: (abs(one - size), one))
            return self._times[nearest] * max(1.0, size / nearest)
        discovery = self._record.discovery
        if discovery is None or discovery.native_step_s is None:
            return 0.0
        return discovery.native_step_s * max(1.0, size / max(1, discovery.native_batch_size))

    def trial_s(self, request: TrialRequest) -> float:
        """Estimated seconds of a trial."""
        if request.turns is not None:
            return turns_s(request.turns, self.step_s)
        steps = FIT_STEPS
        if request.kind == "timed":
            fewer = request.min_warmup_steps + request.min_timed_steps
            steps = TIMED_STEPS if fewer >= FULL_STEPS else fewer
        if request.profile:
            steps += PROFILED_STEPS
        setup_s = 0.0
        discovery = self._record.discovery
        if discovery is not None and (request.fresh_process or discovery.door == "template"):
            setup_s = discovery.setup_s
        return steps * self.step_s(request.batch_size) + setup_s

    def reserve_s(self) -> float:
        """Seconds kept back for confirming what was found: the two best sizes so far."""
        if not self._times or self._record.discovery is None:
            return 0.0
        if self._record.goal.kind == "memory":
            finalists = sorted(self._times)[-2:]
        else:
            finalists = sorted(self._times, key=lambda one: one / self._times[one])[-2:]
        budget_s = self._record.goal.budget_s
        trials = sum(
            RESERVE_TRIALS / 2 * step_s * min(TIMED_STEPS, step_plan(step_s, budget_s).num_steps)
            for step_s in map(self.step_s, finalists)
        )
        apart = self._record.discovery.door == "template"
        whole_s = self._record.discovery.setup_s * (RESERVE_TRIALS if apart else 1) + trials
        return min(whole_s, RESERVE_SHARE * budget_s)

    def allows(self, request: TrialRequest) -> bool:
        """Whether a search trial leaves enough for the confirmation.

        While there is any time the first trials may, up to the one of the script's own size:
        without it there is nothing to compare with.
        """
        if self.left_s <= 0:
            return False
        discovery = self._record.discovery
        own = discovery.native_batch_size if discovery is not None else None
        if not self._times or (request.batch_size == own and own not in self._times):
            return True
        return self.trial_s(request) + self.reserve_s() <= self.left_s
