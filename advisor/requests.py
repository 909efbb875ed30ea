"""Requests as the searches make them."""

from __future__ import annotations

from ..records import RunRecord, TrialRequest
from .cost import Budget, step_plan


def timed_request(record: RunRecord, size: int, reason: str) -> TrialRequest:
    """To time a size, and to profile it if the goal says so and the budget has the time."""
    plan = step_plan(Budget(record).step_s(size), record.goal.budget_s)
    return TrialRequest(
        batch_size=size,
        kind="timed",
        profile=record.goal.profile and plan.profile,
        min_warmup_steps=plan.num_warmup,
        min_timed_steps=plan.num_timed,
        reason=reason,
    )


def fit_request(size: int, reason: str) -> TrialRequest:
    """To see what memory a size takes."""
    return TrialRequest(batch_size=size, kind="fit", reason=reason)
