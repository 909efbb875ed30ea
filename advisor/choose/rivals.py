"""Sizes that may be much faster than the recommended one, for all that the noise tells."""

from __future__ import annotations

from ...records import Spread
from ...spread import ratio_of
from ..measured.measurements import Measurements
from ..measured.turns_model import ratio
from .because import Rival
from .finalists import ratio_to
from .knee import fastest

MUCH_FASTER = 1.15
"""A size whose interval says it may be so many times as fast leaves the answer open."""


def open_rival(measurements: Measurements, size: int) -> Rival | None:
    """The size that may be the most faster than this one by what was measured, if it may be much.

    Two sizes that took turns are compared by these; others by the windows that read each slowest
    and fastest, in the search and in the fresh process.
    """
    if measurements.goal.kind not in ("knee", "throughput"):
        return None
    others = [other for other in measurements.searched if other != size]
    rivals = [
        Rival(other, compared)
        for other in others
        if (compared := _compared(measurements, other, size)) is not None
        and compared.high > MUCH_FASTER
    ]
    return max(rivals, key=lambda rival: rival.ratio.high, default=None)


def fastest_is_open(measurements: Measurements, size: int | None) -> bool:
    """Whether the fresh process put the recommended size before the fastest of the search.

    Its windows say one thing then, and the two in turn another, or that they cannot be told apart:
    neither is called the fastest.
    """
    best = fastest(measurements)
    if size is None or best is None or best == size:
        return False
    again = ratio_to(measurements, size, best)
    return again is not None and again[0] > 1


def _compared(measurements: Measurements, other: int, size: int) -> Spread | None:
    in_turn = ratio(measurements.turns, other, size)
    if in_turn is not None:
        return in_turn
    timed = measurements.best_timed
    if other not in timed or size not in timed:
        return None
    theirs, mine = timed[other].samples_per_s, timed[size].samples_per_s
    if theirs is None or mine is None:
        return None
    return ratio_of(theirs, mine)
