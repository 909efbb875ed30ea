"""How long and how precisely one trial is measured."""

from __future__ import annotations

from ..advisor.measured.energy import SHORTEST_S
from ..probes.process.orders import RunTrial
from ..records import RunRecord, TrialRequest

CPU_PRECISION = 0.05
GPU_PRECISION = 0.02
"""Relative half-width of the median's interval at which timing stops."""
MIN_SAMPLE_S = 0.02
"""Steps shorter than this are averaged in groups, except where only memory counts."""
MAX_TIMED_S = 30.0
BUDGET_SHARE = 1 / 16
"""A timed phase takes at most so long, and at most this share of the budget."""

ENERGY_S = 1.25 * SHORTEST_S
"""So long every size is timed where its energy counts, whatever the precision by then."""


def order_of(
    request: TrialRequest,
    ordinal: int,
    record: RunRecord,
    *,
    brief: bool,
    deadline_s: float,
    left_out: str = "",
) -> RunTrial:
    """What the worker is told of a trial.

    Args:
        record: of the run so far.
        brief: the script has few steps to give.
        deadline_s: seconds that the whole trial may take.
        left_out: why only time and memory are measured; empty where all is.
    """
    goal = record.goal
    on_cpu = record.device is None or record.device.kind == "cpu"
    time_limit_s = max(1.0, min(MAX_TIMED_S, goal.budget_s * BUDGET_SHARE))
    min_time_s = 0.0
    if goal.kind == "energy":
        min_time_s = time_limit_s = ENERGY_S
    return RunTrial(
        request=request,
        ordinal=ordinal,
        precision=CPU_PRECISION if on_cpu else GPU_PRECISION,
        min_sample_s=0.0 if goal.kind == "memory" or brief else MIN_SAMPLE_S,
        min_time_s=min_time_s,
        brief=brief,
        time_limit_s=time_limit_s,
        deadline_s=deadline_s,
        left_out=left_out,
    )
