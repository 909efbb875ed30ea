"""The time of a step by what its batches hold, fitted to the timed steps of a run.

    seconds = fixed + a x positions + b x rows x length²

Positions are places for tokens, padding included; the square is what attention adds. No number is
below zero, and each step weighs alike; see least_squares.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from ...records import TokenStep
from .least_squares import fits

MIN_LAW_STEPS = 8
MIN_RANGE = 1.15
"""The largest step holds at least so many times the positions of the smallest."""
MAX_RESIDUAL = 0.15
"""A law that steps usually miss by more says nothing."""
HELD_UP = 1.5
"""Steps that take so many times what the law says were held up: it is fitted without them."""


class PositionLaw(NamedTuple):
    """The law, and how well steps follow it.

    Attributes:
        residual: median relative distance of the steps.
    """

    fixed_s: float
    position_s: float
    square_s: float
    residual: float
    num_steps: int

    def step_s(self, positions: float, squares: float) -> float:
        """Seconds of a step."""
        return self.fixed_s + self.position_s * positions + self.square_s * squares


def position_law(steps: Sequence[TokenStep]) -> PositionLaw | str:
    """The law of these steps; why there is none."""
    known = [
        (float(step.positions), float(step.squares), step.step_s)
        for step in steps
        if step.positions and step.squares and step.step_s > 0
    ]
    if len(known) < MIN_LAW_STEPS:
        return (
            f"{len(known)} timed steps tell their positions, and a law of them needs "
            f"{MIN_LAW_STEPS}"
        )
    places = [positions for positions, _, _ in known]
    if max(places) < MIN_RANGE * min(places):
        return "all steps hold about as many positions"
    law = _without_held_up(known)
    if law.residual > MAX_RESIDUAL:
        return f"steps usually miss their law by {law.residual:.0%}"
    if not law.position_s and not law.square_s:
        return "steps take as long however many positions they hold"
    return law


def any_law(steps: Sequence[TokenStep]) -> PositionLaw | None:
    """The law of these steps however well they follow it; `None` where too few are known.

    What it misses is left to who compares steps with it. Packed rows have no square.
    """
    known = [
        (float(step.positions), float(step.squares or 0), step.step_s)
        for step in steps
        if step.positions and step.step_s > 0
    ]
    if len(known) < MIN_LAW_STEPS:
        return None
    return _without_held_up(known)


def _without_held_up(known: Sequence[tuple[float, float, float]]) -> PositionLaw:
    """The law of these steps, fitted again without those that took far longer than it says."""
    law = _fit(known)
    kept = [step for step in known if step[2] < HELD_UP * law.step_s(*step[:2])]
    return _fit(kept) if MIN_LAW_STEPS <= len(kept) < len(known) else law


def _fit(steps: Sequence[tuple[float, float, float]]) -> PositionLaw:
    rows = [
        (1 / seconds, positions / seconds, squares / seconds)
        for positions, squares, seconds in steps
    ]
    # There is one: a term alone is never negative.
    best = min(fits(rows, range(3)), key=lambda fit: fit.squares)
    fixed, position, square = best.numbers
    return PositionLaw(fixed, position, square, median(map(abs, best.misses)), len(steps))
