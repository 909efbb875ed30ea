"""Windows at chosen lengths, before a search grows: what memory a longer batch takes.

    the script's own size:   shortest ── median ── longest
    twice that:                          median ── longest

They run in a fresh process, the smallest first, so that none sees what a larger one left behind.
Of the longest samples there are so many as the law of the windows before says that there is memory
for.
The search then grows no further than the law of batch and length says that an epoch fits.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ...records import LengthChoice, Trial, TrialRequest
from ..measured.epoch_chance import worst_peak
from ..measured.length_law import fit_lengths, points_of
from ..measured.measurements import Measurements
from .cost import Budget
from .requests import fit_request

NEAR_LIMIT = 0.1
"""Below this share of the capacity no batch of other lengths is a danger that is looked for."""
VARIES = 1.1
"""The longest batch that was seen over the shortest, from which on lengths matter."""
REASON = "what memory batches of other lengths take"


class _Window(NamedTuple):
    size: int
    length: LengthChoice


def next_window(measurements: Measurements, budget: Budget) -> TrialRequest | None:
    """The next window at a chosen length, `None` where there is none."""
    made = [trial for trial in measurements.record.trials if trial.purpose == "lengths"]
    if not made and not _matter(measurements):
        return None
    if any(trial.ran and (trial.inputs is None or trial.inputs.chosen is None) for trial in made):
        return None  # lengths cannot be chosen, as that window showed
    window = _fitting(measurements, _next(measurements, made), made)
    if window is None:
        return None
    request = msgspec.structs.replace(
        fit_request(window.size, REASON),
        purpose="lengths",
        length=window.length,
        fresh_process=not made,
    )
    has_time = budget.has_room_beside(request)
    return request if has_time else None


def _fitting(
    measurements: Measurements, window: _Window | None, made: list[Trial]
) -> _Window | None:
    """The window, of the longest samples by halves as many as the law of those before lets fit.

    `None` where that would be one that was made.
    """
    if window is None or window.length != "longest":
        return window
    while window.size > 1 and _too_much(measurements, window):
        window = _Window(window.size // 2, "longest")
    known = {trial.batch_size for trial in made if trial.chosen_length == "longest"}
    return None if window.size in known else window


def _next(measurements: Measurements, made: list[Trial]) -> _Window | None:
    """The window that follows; those of the longest samples are halved until one fits."""
    plan = _plan(measurements)
    if not any(not trial.ran for trial in made):
        return plan[len(made)] if len(made) < len(plan) else None
    last = made[-1]
    if last.ran or last.outcome != "out_of_memory" or last.batch_size == 1:
        return None
    if last.batch_size > made[0].batch_size:
        return None  # that of half the size ran
    return _Window(last.batch_size // 2, "longest")


def _plan(measurements: Measurements) -> tuple[_Window, ...]:
    own = measurements.own_size or 1
    # The bound by the lengths moves while their windows are made.
    twice = 2 * own
    most = measurements.goal.max_batch or twice
    low, high = (own, twice) if twice <= most else (max(1, own // 2), own)
    windows = [
        _Window(low, "shortest"),
        _Window(low, "median"),
        _Window(high, "median"),
        _Window(low, "longest"),
        _Window(high, "longest"),
    ]
    return tuple(dict.fromkeys(windows))


def _matter(measurements: Measurements) -> bool:
    """Whether lengths differ, can be chosen, and memory is not so plentiful that they are idle."""
    record = measurements.record
    discovery, target = record.discovery, measurements.target_bytes
    if discovery is None or target is None or not discovery.traits.reorders_samples:
        return False
    if discovery.num_ranks > 1 or discovery.primary.steered != "exact":
        return False
    seen = [trial.inputs for trial in measurements.ran if trial.inputs is not None]
    if not seen or max(each.largest for each in seen) < VARIES * min(
        each.smallest for each in seen
    ):
        return False
    peaks = [memory.peak_bytes for memory in measurements.trusted_memory.values()]
    refused = any(failure.outcome == "out_of_memory" for failure in measurements.failed)
    return refused or max(peaks, default=0) >= NEAR_LIMIT * target


def _too_much(measurements: Measurements, window: _Window) -> bool:
    """Whether the windows so far say that this one would not fit."""
    trials = measurements.record.trials
    law = fit_lengths(points_of(trials))
    longest = [
        trial.inputs.census.lengths[-1]
        for trial in trials
        if trial.inputs is not None and trial.inputs.census is not None
    ]
    device, discovery = measurements.record.device, measurements.record.discovery
    if isinstance(law, str) or device is None or discovery is None or not longest:
        return False
    by_budget = discovery.axis != "samples"
    peak = worst_peak(law, window.size, max(longest), by_budget=by_budget)
    return peak > device.capacity_bytes
