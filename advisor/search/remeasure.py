"""Sizes whose time something seems to have disturbed; they are timed once more."""

from __future__ import annotations

from collections import Counter

from ...records import Trial, TrialRequest
from ..measured.measurements import Measurements
from ..measured.scaling import slower_than_larger
from ..measured.trials import throughput
from ..measured.turn_sizes import field
from .requests import timed_request

DOUBTED_FALL = 1.05
"""A step that takes this many times as long as one of a larger size is doubted."""
DIP = 0.95
"""So is a throughput below this share of both its neighbours'."""
MAX_AGAIN = 4
"""Sizes of one search that are timed again."""


def again(measurements: Measurements) -> TrialRequest | None:
    """A size that something seems to have disturbed is timed once more.

    It is when others used the machine meanwhile, when a larger size was faster a step, or when
    its throughput falls below that of both its neighbours. If it stays so, it is real.
    """
    sizes = measurements.searched
    counts = Counter(trial.batch_size for trial in measurements.searched_trials)
    suspects = [size for size, trial in sizes.items() if trial.doubts]
    compared = field(measurements)
    for size in dict.fromkeys([*suspects, *slower_than_larger(sizes, DOUBTED_FALL), *_dips(sizes)]):
        if size in compared:
            continue
        if counts[size] == 1 and sum(counts.values()) - len(counts) < MAX_AGAIN:
            why = "timed again: something seems to have disturbed it"
            return timed_request(measurements, size, why)
    return None


def _dips(sizes: dict[int, Trial]) -> list[int]:
    """Sizes with clearly less throughput than the next smaller and the next larger one."""
    ordered = list(sizes)
    return [
        size
        for before, size, after in zip(ordered, ordered[1:], ordered[2:], strict=False)
        if throughput(sizes[size]) < DIP * min(throughput(sizes[before]), throughput(sizes[after]))
    ]
