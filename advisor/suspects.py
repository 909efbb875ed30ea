"""Sizes whose time something seems to have disturbed; they are timed once more."""

from __future__ import annotations

from collections import Counter

from ..records import RunRecord, Trial, TrialRequest
from .facts import searched, searched_trials, throughput
from .requests import timed_request
from .turns import field

FALLING = 1.05
"""A step that takes this many times as long as one of a larger size is doubted."""
DIP = 0.95
"""So is a throughput below this share of both its neighbours'."""
MAX_AGAIN = 4
"""Sizes of one search that are timed again."""


def again(record: RunRecord) -> TrialRequest | None:
    """A size that something seems to have disturbed is timed once more.

    It is when others used the machine meanwhile, when a larger size was faster a step, or when
    its throughput falls below that of both its neighbours. If it stays so, it is real.
    """
    sizes = searched(record)
    counts = Counter(one.batch_size for one in searched_trials(record))
    suspects = [size for size, one in sizes.items() if one.doubts]
    compared = field(record)
    for size in dict.fromkeys([*suspects, *slower_than_larger(sizes, FALLING), *_dips(sizes)]):
        if size in compared:
            continue
        if counts[size] == 1 and sum(counts.values()) - len(counts) < MAX_AGAIN:
            return timed_request(record, size, "timed again: something seems to have disturbed it")
    return None


def slower_than_larger(sizes: dict[int, Trial], factor: float) -> list[int]:
    """Sizes whose step took `factor` times as long as that of a larger size, or longer.

    Of as many batches: a script that steps after so many samples needs fewer of a larger size.
    """
    times = {
        size: one.step_s.median
        for size, one in sizes.items()
        if one.step_s is not None and not one.contended
    }
    return [
        size
        for size, time in times.items()
        if any(
            other > size
            and time > factor * times[other]
            and sizes[other].micro_batches == sizes[size].micro_batches
            for other in times
        )
    ]


def _dips(sizes: dict[int, Trial]) -> list[int]:
    """Sizes with clearly less throughput than the next smaller and the next larger one."""
    ordered = list(sizes)
    return [
        size
        for before, size, after in zip(ordered, ordered[1:], ordered[2:], strict=False)
        if throughput(sizes[size]) < DIP * min(throughput(sizes[before]), throughput(sizes[after]))
    ]
