"""Requests as the searches make them."""

from __future__ import annotations

from ..records import RunRecord, TrialRequest


def timed_request(record: RunRecord, size: int, reason: str) -> TrialRequest:
    """To time a size, and to profile it if the goal says so."""
    return TrialRequest(batch_size=size, kind="timed", profile=record.goal.profile, reason=reason)


def fit_request(size: int, reason: str) -> TrialRequest:
    """To see what memory a size takes."""
    return TrialRequest(batch_size=size, kind="fit", reason=reason)
