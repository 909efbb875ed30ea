"""Requests as the searches make them."""

from __future__ import annotations

from ...records import CHOSEN_STEPS, TrialRequest
from ..measured.measurements import Measurements
from ..measured.turn_sizes import only_beside_others, waiting
from .cost import SHORTEST_PLAN, budget_of, has_time_for_a_profile, step_plan


def timed_request(measurements: Measurements, size: int, reason: str) -> TrialRequest:
    """Asks to time a size, and to profile it if the goal says so and the budget has the time."""
    goal = measurements.goal
    step_s, budget_s = budget_of(measurements).step_s(size), goal.budget_s
    plan = step_plan(step_s, budget_s)
    if only_beside_others(measurements):
        plan = SHORTEST_PLAN  # its turns tell, not its window
    num_warmup = plan.num_warmup
    if goal.worst_case and not goal.seq_lens and not measurements.why_unordered:
        num_warmup = max(num_warmup, CHOSEN_STEPS)
    # One trace there shall be, of the script as it is, unless its steps are very long.
    wanted = plan.profile or (
        size == measurements.own_size and has_time_for_a_profile(step_s, budget_s)
    )
    return TrialRequest(
        batch_size=size,
        kind="timed",
        profile=goal.profile and wanted,
        min_warmup_steps=num_warmup,
        min_timed_steps=plan.num_timed,
        reason=reason,
        beside=tuple(own for own in waiting(measurements) if own != size),
    )


def fit_request(size: int, reason: str) -> TrialRequest:
    """Asks to see what memory a size takes."""
    return TrialRequest(batch_size=size, kind="fit", reason=reason)
