"""Which sizes may take turns, step by step, in one process."""

from __future__ import annotations

from .measurements import Measurements
from .once import once
from .trials import fastest_of, throughput

FIELD = 0.5
"""Sizes from this share of the best throughput on are compared."""
COMPARISON_SHARE = 0.1
"""One comparison may cost this share of the budget."""
ONLY_COMPARISON_SHARE = 0.5
"""One that alone can tell may cost this share: windows that only ever ran beside others do not. By
its steps a GAN with two data workers needs 25 s of 60 for four rounds beside one busy process
(bench/results/regret_amd-epyc-2-cores_2026-11-27.json)."""
MIN_ROUNDS = 4
TURN_WARMUP_STEPS = 1
"""The first step after another size finds memory of another shape."""
MAX_WORKERS_WARMUP_STEPS = 9
"""Data workers have batches of the old size under way, which are dropped; two each by default. So
many steps later, at most, their queue is as it is in training."""


@once
def field(measurements: Measurements) -> dict[int, float]:
    """The sizes that may take turns, ascending, with the seconds of a counted step.

    The script's own size may however slow it is: what it gains by another is the answer.

    Where batches are fetched in pools, that is as many optimizer steps as a pool has batches for.
    """
    device, script = measurements.record.device, measurements.script
    if device is None or device.kind != "cpu":
        return {}
    if not script.takes_turns or measurements.too_short_for_turns:
        return {}
    measured = {
        size: trial
        for size, trial in fastest_of(measurements.searched_trials).items()
        if measurements.usable(size)
    }
    floor = FIELD * max(map(throughput, measured.values()), default=0.0)
    warmup = warmup_steps(measurements)
    most_s = comparison_share(measurements) * measurements.goal.budget_s / 2 / MIN_ROUNDS
    most_s /= 1 + warmup
    return {
        size: script.pool * trial.step_s.median
        for size, trial in measured.items()
        if trial.step_s is not None
        and (throughput(trial) >= floor or size == measurements.own_size)
        and script.pool * trial.step_s.median <= most_s
    }


def comparison_share(measurements: Measurements) -> float:
    """The share of the budget that one comparison may cost."""
    return ONLY_COMPARISON_SHARE if only_turns_tell(measurements) else COMPARISON_SHARE


def only_turns_tell(measurements: Measurements) -> bool:
    """Whether two sizes or more were timed, each only beside others, and none took turns yet."""
    trials = measurements.searched_trials
    several = len({trial.batch_size for trial in trials}) > 1
    return several and all(trial.contended for trial in trials) and not measurements.search_turns


def warmup_steps(measurements: Measurements) -> int:
    """Steps of a turn that do not count."""
    num_queued = 2 * (measurements.script.num_workers or 0)
    return min(TURN_WARMUP_STEPS + num_queued, MAX_WORKERS_WARMUP_STEPS)
