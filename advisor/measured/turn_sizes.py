"""Which sizes may take turns, step by step, in one process."""

from __future__ import annotations

from collections.abc import Collection

from ...records import Trial
from .measurements import Measurements
from .once import once
from .trials import fastest_of, throughput

FIELD = 0.5
"""Sizes from this share of the best throughput on are compared."""
COMPARISON_SHARE = 0.1
"""One comparison may cost this share of the budget."""
OWN_COMPARISON_SHARE = 0.3
"""One of the script's own size and a larger one may cost this share, where it is the only one that
has both: what is gained is the answer. On two cores steps of 0.4 s and 1.7 s (a public GPT, 64 and
256 sequences) take 13 to 20 s of 120 for three or four rounds."""
ONLY_COMPARISON_SHARE = 0.5
"""Those that alone can tell may cost this share together: windows that only ever ran beside others
do not. By its steps a GAN with two data workers needs 25 s of 60 for four rounds beside one busy
process (bench/results/regret_amd-epyc-2-cores_2026-11-27.json)."""
SET_ASIDE_SHARE = 1 / 8
"""A process that waits while another size is timed may fill this share of the memory."""
MIN_ROUNDS = 4
TURN_WARMUP_STEPS = 1
"""The first step after another size finds memory of another shape."""
MAX_WORKERS_WARMUP_STEPS = 9
"""Data workers have batches of the old size under way, which are dropped; two each by default. So
many steps later, at most, their queue is as it is in training."""
READY = 0.02
"""A step that waits for less of its time finds a batch ready."""


@once
def field(measurements: Measurements) -> dict[int, float]:
    """The sizes that may take turns, ascending, with the seconds of a counted step.

    The script's own size may however slow it is: what it gains by another is the answer.

    Where batches are fetched in pools, that is as many optimizer steps as a pool has batches for.
    """
    most_s = comparison_share(measurements) * _round_s(measurements) / 2
    return {size: step_s for size, step_s in _steps(measurements).items() if step_s <= most_s}


def long_pair(measurements: Measurements) -> dict[int, float]:
    """The script's own size and the fastest larger one, as in `field`, where no larger one is short
    enough for that, and these two may take turns alone; empty elsewhere.
    """
    own, steps = measurements.own_size, _steps(measurements)
    above = [] if own not in steps else [size for size in steps if size > own]
    if own is None or not above or measurements.rated_by_tokens or only_turns_tell(measurements):
        return {}
    if any(size > own for size in field(measurements)):
        return {}
    size = max(above, key=lambda each: each / steps[each])
    most_s = OWN_COMPARISON_SHARE * _round_s(measurements)
    pair = {own: steps[own], size: steps[size]}
    return pair if sum(pair.values()) <= most_s else {}


def _steps(measurements: Measurements) -> dict[int, float]:
    """Seconds of a counted step of each size that may take turns, however long."""
    if not can_take_turns(measurements):
        return {}
    return {
        size: measurements.script.pool * trial.step_s.median
        for size, trial in _candidates(measurements).items()
        if trial.step_s is not None
    }


def _round_s(measurements: Measurements) -> float:
    """Seconds of the counted steps of a round, if the whole budget went to one comparison."""
    return measurements.goal.budget_s / MIN_ROUNDS / (1 + warmup_steps(measurements))


def can_take_turns(measurements: Measurements) -> bool:
    """Whether sizes may take turns on this device and in this script."""
    device, script = measurements.record.device, measurements.script
    if device is None or device.kind != "cpu":
        return False
    return script.takes_turns and not measurements.too_short_for_turns


def may_live_at_once(measurements: Measurements, sizes: Collection[int]) -> bool:
    """Whether sizes that have a process each may take turns: all of them live, and one goes on.

    The device must hold them together. Of a GPU nobody knows what it holds of a process that waits.
    """
    memory, target = measurements.trusted_memory, measurements.target_bytes
    if target is None or len(sizes) < 2 or not _processes_may_wait(measurements):
        return False
    if not all(size in memory and size in measurements.best_timed for size in sizes):
        return False
    return sum(memory[size].peak_bytes for size in sizes) <= target


def waiting(measurements: Measurements) -> tuple[int, ...]:
    """The script's own size, where its process may wait while larger ones are timed: each of them
    then takes turns with it.
    """
    goal = measurements.goal
    if goal.kind not in ("knee", "throughput") or goal.sizes:
        return ()
    own, target = measurements.own_size, measurements.target_bytes
    if own is None or own not in measurements.best_timed or not _processes_may_wait(measurements):
        return ()
    memory = measurements.trusted_memory.get(own)
    if memory is None or target is None or memory.peak_bytes > SET_ASIDE_SHARE * target:
        return ()
    return (own,)


def _processes_may_wait(measurements: Measurements) -> bool:
    """Whether each size has a process, of which one may go on while others wait."""
    record, script = measurements.record, measurements.script
    device, ranks = record.device, record.distribution
    alone = ranks is None or ranks.world_size == 1
    on_cpu = device is not None and device.kind == "cpu"
    return on_cpu and alone and script.process_per_size and not measurements.too_short_for_turns


def have_met(measurements: Measurements, sizes: Collection[int]) -> bool:
    """Whether one comparison of the confirmation had all of these sizes."""
    return any(set(sizes) <= set(turns.sizes) for turns in measurements.confirmed_turns)


@once
def _candidates(measurements: Measurements) -> dict[int, Trial]:
    """Sizes near the best and the script's own, with the trial that speaks for each.

    Where all ran beside others larger ones are, too, however slow their windows were: threads that
    share a core for that long make a step fifty times as long.
    """
    measured = {
        size: trial
        for size, trial in fastest_of(measurements.searched_trials).items()
        if measurements.usable(size)
    }
    own = measurements.own_size
    floor = FIELD * max(map(throughput, measured.values()), default=0.0)
    least = own if own is not None and only_beside_others(measurements) else None
    return {
        size: trial
        for size, trial in measured.items()
        if throughput(trial) >= floor or size == own or (least is not None and size > least)
    }


def comparison_share(measurements: Measurements) -> float:
    """The share of the budget that one comparison may cost."""
    if not only_turns_tell(measurements):
        return COMPARISON_SHARE
    spent_s = sum(trial.elapsed_s for trial in measurements.ran if trial.kind == "turns")
    return max(COMPARISON_SHARE, ONLY_COMPARISON_SHARE - spent_s / measurements.goal.budget_s)


@once
def only_turns_tell(measurements: Measurements) -> bool:
    """Whether sizes were timed only beside others, and one of those near the best, or the script's
    own, has not taken turns yet."""
    met = {size for turns in measurements.search_turns for size in turns.sizes}
    candidates = _candidates(measurements).keys()
    return len(candidates) > 1 and not candidates <= met and only_beside_others(measurements)


def only_beside_others(measurements: Measurements) -> bool:
    """Whether sizes were timed, none of them without others on its cores, and may take turns."""
    return timed_beside_others(measurements) and can_take_turns(measurements)


def timed_beside_others(measurements: Measurements) -> bool:
    """Whether no window of the search had its cores to itself."""
    trials = measurements.searched_trials
    return bool(trials) and all(trial.contended for trial in trials)


def warmup_steps(measurements: Measurements) -> int:
    """Steps of a turn that do not count: until the queue of the data workers is full again.

    Beside others steps are long: a queue that is never empty is full again after the first.
    """
    filled = filled_after(measurements)
    if filled is not None:
        return min(max(TURN_WARMUP_STEPS, filled), MAX_WORKERS_WARMUP_STEPS)
    num_queued = 2 * (measurements.script.num_workers or 0)
    if num_queued and timed_beside_others(measurements) and _finds_batches_ready(measurements):
        num_queued = 0
    return min(TURN_WARMUP_STEPS + num_queued, MAX_WORKERS_WARMUP_STEPS)


@once
def filled_after(measurements: Measurements) -> int | None:
    """Steps after a change of size until the data workers have made all that they may hold ready,
    the most that a size near the best took; `None` where one had not, or none was seen.

    Steps then find their batch whatever the workers do, and need not be looked at in bursts.
    """
    before: dict[int, int | None] = {}
    changed: list[Trial] = []
    near = _candidates(measurements)
    for trial in measurements.ran:
        previous = before.get(trial.worker, measurements.script.first_size)
        before[trial.worker] = trial.batch_size
        if trial.kind == "timed" and trial.batch_size != previous and trial.batch_size in near:
            changed.append(trial)
    steps = [trial.filled_after for trial in changed if trial.filled_after is not None]
    return max(steps) if changed and len(steps) == len(changed) else None


def _finds_batches_ready(measurements: Measurements) -> bool:
    """Whether no size near the best waited for its loader."""
    return all(
        trial.step_s is not None
        and trial.input_wait_s is not None
        and trial.input_wait_s.median <= READY * trial.step_s.median
        for trial in _candidates(measurements).values()
    )
