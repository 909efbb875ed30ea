"""The time of a step by what its batches hold, fitted to the timed steps of a run.

    seconds = fixed + a x positions + b x rows x length²

Positions are places for tokens, padding included; the square is what attention adds. No term may
be negative: of the subsets of the terms the one with the least squared relative error is taken
(Lawson and Hanson, Solving Least Squares Problems, chapter 23; with three terms all can be tried).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import fsum
from statistics import median
from typing import NamedTuple

from ...records import TokenStep

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
    best: tuple[float, list[float]] | None = None
    for num in (1, 2, 3):
        for terms in combinations(range(3), num):
            # Each step weighs alike, by its relative error; terms are scaled to about 1.
            rows = [
                [(1.0, positions, squares)[term] / seconds for term in terms]
                for positions, squares, seconds in steps
            ]
            solved = _least_squares(rows)
            if solved is None or min(solved) < 0:
                continue
            error = fsum(
                (1 - fsum(a * b for a, b in zip(solved, row, strict=True))) ** 2 for row in rows
            )
            if best is None or error < best[0]:
                full = [0.0, 0.0, 0.0]
                for term, value in zip(terms, solved, strict=True):
                    full[term] = value
                best = error, full
    assert best is not None  # one term alone is never negative
    fixed, position, square = best[1]
    law = PositionLaw(fixed, position, square, 0.0, len(steps))
    off = median(abs(1 - law.step_s(*step[:2]) / step[2]) for step in steps)
    return law._replace(residual=off)


def _least_squares(rows: Sequence[Sequence[float]]) -> list[float] | None:
    """The weights of the columns whose sum is nearest to 1 in all rows; `None` if they depend."""
    num = len(rows[0])
    scale = [max(abs(row[column]) for row in rows) or 1.0 for column in range(num)]
    scaled = [[value / by for value, by in zip(row, scale, strict=True)] for row in rows]
    matrix = [
        [fsum(row[i] * row[j] for row in scaled) for j in range(num)]
        + [fsum(row[i] for row in scaled)]
        for i in range(num)
    ]
    for i in range(num):  # Gauss, the largest pivot first
        pivot = max(range(i, num), key=lambda k: abs(matrix[k][i]))
        if abs(matrix[pivot][i]) < 1e-12:
            return None
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        for k in range(num):
            if k != i:
                share = matrix[k][i] / matrix[i][i]
                matrix[k] = [a - share * b for a, b in zip(matrix[k], matrix[i], strict=True)]
    return [matrix[i][num] / matrix[i][i] / scale[i] for i in range(num)]
