"""Sizes below the smallest that ran: where batches are padded, fewer samples pad less."""

from __future__ import annotations

from ...records import TrialRequest
from ..measured.measurements import Measurements
from ..measured.sizes import allowed, smallest_allowed, smallest_sound
from ..measured.trials import throughput
from ..measured.usual_steps import foreseen
from .requests import timed_request

LEAST_PADDING = 0.02
"""A smaller share of padding leaves nothing to gain."""
IN_REACH = 0.7
"""The smallest size reaches this share of the best rate, or smaller ones are not looked at."""
CLEAR_LOSS = 0.1
"""A larger size that the law puts so much lower is not tried."""
MISSED_BY = 0.05
"""The law may be off by so much: a smaller size that it puts no lower may be faster."""


def surely_slower(measurements: Measurements, size: int, last: int) -> bool:
    """Whether the law of the steps, where they follow it, says that a larger size clearly loses."""
    if not measurements.rated_by_tokens:
        return False
    law = foreseen(measurements.record, (size, last), closely=True)
    return law is not None and law[size] < (1 - CLEAR_LOSS) * law[last]


def next_smaller(measurements: Measurements) -> TrialRequest | None:
    """Half of the smallest size, while real tokens per second rise or the law says they may."""
    sizes = measurements.searched
    goal = measurements.goal
    if not sizes or goal.sizes or goal.kind == "energy" or not measurements.rated_by_tokens:
        return None
    smallest = min(sizes)
    tokens = sizes[smallest].tokens
    if tokens is None or (tokens.padding_share or 0.0) < LEAST_PADDING:
        return None
    half = allowed(measurements, smallest // 2)
    least = max(smallest_allowed(measurements), smallest_sound(measurements))
    if not least <= half < smallest or measurements.ruled_out(half):
        return None
    rates = {size: throughput(trial) for size, trial in sizes.items()}
    if rates[smallest] < IN_REACH * max(rates.values()):
        return None
    larger = min((size for size in sizes if size > smallest), default=smallest)
    rises = rates[smallest] > rates[larger] and smallest < (measurements.own_size or smallest)
    law = foreseen(measurements.record, (half, smallest))
    may_rise = law is None or law[half] >= (1 - MISSED_BY) * law[smallest]
    if not (rises or may_rise):
        return None
    return timed_request(measurements, half, "a smaller batch pads less: is it faster?")
