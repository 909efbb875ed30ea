"""Sizes that ran beside the captured graphs of others: what that says of their memory.

The pools of captured graphs stay reserved while a process lives. A size that is refused there, or
whose peak is too high, may fit by itself; it is tried in a process of its own before it is called
too large.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...records import Trial

MOST_ALONE = 2
"""A size is tried so often in a process of its own."""


def captures_graphs(trials: Sequence[Trial]) -> bool:
    """Whether a process of the script was seen to hold pools of captured graphs."""
    return any(_pools_bytes(trial) for trial in trials)


def beside_others(trials: Sequence[Trial], trial: Trial) -> bool:
    """Whether its process held graphs of another size that had run there before."""
    return any(
        other.batch_size != trial.batch_size and _pools_bytes(other)
        for other in trials
        if other.worker == trial.worker and other.ordinal < trial.ordinal
    )


def others_bytes(trials: Sequence[Trial], trial: Trial, own_size: int | None) -> int:
    """Bytes of a trial's peak that graphs of other sizes held; 0 where they may be of its own."""
    if trial.memory is None or not trial.memory.earlier_pools_bytes:
        return 0
    before = [earlier for earlier in trials if earlier.ordinal < trial.ordinal]
    again = any(
        earlier.worker == trial.worker and earlier.batch_size == trial.batch_size
        for earlier in before
    )
    return 0 if again or trial.batch_size == own_size else trial.memory.earlier_pools_bytes


def overruled(trials: Sequence[Trial], trial: Trial) -> bool:
    """Whether a refusal beside other sizes' graphs was followed by a run without them."""
    return (
        trial.outcome == "out_of_memory"
        and beside_others(trials, trial)
        and any(
            later.ran and later.batch_size >= trial.batch_size and is_alone(trials, later)
            for later in trials
            if later.ordinal > trial.ordinal
        )
    )


def is_alone(trials: Sequence[Trial], trial: Trial) -> bool:
    """Whether no trial ran before it in its process."""
    return all(other.worker != trial.worker for other in trials if other.ordinal < trial.ordinal)


def may_be_tried_alone(trials: Sequence[Trial], trial: Trial) -> bool:
    """Whether what a trial said of its memory was said beside others' graphs alone."""
    alone = [
        other
        for other in trials
        if other.batch_size == trial.batch_size and is_alone(trials, other)
    ]
    settled = any(other.ordinal > trial.ordinal for other in alone) or len(alone) >= MOST_ALONE
    return beside_others(trials, trial) and not settled


def refused_beside_others_only(trials: Sequence[Trial], size: int) -> bool:
    """Whether no process without other sizes' graphs refused a size."""
    refusals = [
        trial for trial in trials if trial.batch_size == size and trial.outcome == "out_of_memory"
    ]
    return bool(refusals) and all(beside_others(trials, trial) for trial in refusals)


def _pools_bytes(trial: Trial) -> int:
    return 0 if trial.memory is None else trial.memory.graph_pools_bytes or 0
