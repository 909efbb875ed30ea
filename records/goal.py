"""The goal that the user asked for."""

from __future__ import annotations

from typing import Literal

from .base import Count, Record

GoalKind = Literal["knee", "throughput", "memory", "energy"]


class Goal(Record, frozen=True, kw_only=True):
    """The goal of a run.

    Attributes:
        kind: `knee` (the smallest size within `tolerance` of the best throughput), `throughput`
            (the fastest), `memory` (the largest) or `energy` (the most samples per joule).
        margin: share of the capacity to leave free, 0..1.
        tolerance: throughput that a smaller size may cost under `knee`, 0..1.
        budget_s: wall time for all trials.
        sizes: try exactly these.
        multiple_of: recommend multiples of this only, and end epochs in one.
        worst_case: every trial begins with the longest samples, so that its peak holds for them.
        precision: half of the interval around a step time at which timing stops, a share; `None`
            leaves that to the run.
        seq_lens: lengths of sequences that the script's argument may have; it was started with the
            middle one, under `worst_case` with the longest.
    """

    kind: GoalKind = "knee"
    margin: float = 0.05
    tolerance: float = 0.05
    budget_s: float = 120.0
    max_batch: int | None = None
    start: int | None = None
    sizes: tuple[int, ...] = ()
    profile: bool = True
    multiple_of: Count = 1
    keep_effective_batch: bool = False
    worst_case: bool = False
    precision: float | None = None
    seq_lens: tuple[int, ...] = ()
