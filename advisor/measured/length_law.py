"""Peak memory = fixed + a x tokens + b x batch x length², fitted to windows at chosen lengths."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import sqrt
from typing import NamedTuple

from ...records import LengthLaw, Trial

MAX_LENGTH_RESIDUAL = 0.12
"""A law that misses one of its points by more is refused."""
WORTH = 0.5
"""The square of the length is taken in where it halves what a law without it misses."""
LEAST_SPREAD = 0.004
"""Peaks of equal batches differ by about so much of themselves, however well a law fits."""
LEAST_PEAK_GROWTH = 0.03
"""Peaks that differ by a smaller share differ by little more than equal ones, and a law through
them would be carried far beyond what it rests on."""
MIN_POINTS = 3
_TINY = 1e-12


class Point(NamedTuple):
    """One window: its largest batch and the memory that it took.

    Attributes:
        num_samples, longest: of its batches, padded to the longest.
    """

    num_samples: int
    longest: int
    peak_bytes: int

    @property
    def terms(self) -> tuple[float, float, float]:
        """Factors of the law's three numbers: 1, tokens, tokens x length."""
        return terms_of(self.num_samples, self.longest)


def terms_of(num_samples: float, longest: float) -> tuple[float, float, float]:
    """Factors of the law's three numbers, for a batch padded to its longest sample."""
    tokens = float(num_samples * longest)
    return 1.0, tokens, tokens * longest


def points_of(trials: Sequence[Trial]) -> list[Point]:
    """Takes the points from the windows that ran with samples chosen by their length."""
    return [
        Point(trial.inputs.chosen.num_samples, trial.inputs.chosen.longest, trial.memory.peak_bytes)
        for trial in trials
        if trial.purpose == "lengths"
        and trial.outcome == "ok"
        and trial.memory is not None
        and trial.inputs is not None
        and trial.inputs.chosen is not None
    ]


def fit_lengths(points: Sequence[Point]) -> LengthLaw | str:
    """The law, or the reason why there is none.

    The smallest window may lie on a floor that its batch does not set: where the others agree
    without it, it is left out.
    """
    distinct = sorted(set(points), key=lambda point: point.terms[1])
    if len(distinct) < MIN_POINTS:
        return f"three windows at chosen lengths are needed; found: {len(distinct)}"
    law = _fit(distinct)
    if law is not None and law.residual > MAX_LENGTH_RESIDUAL and len(distinct) > MIN_POINTS:
        law = _fit(distinct[1:]) or law
    if law is None or law.per_token_bytes + law.per_square_bytes <= 0:
        return "peak memory does not grow with the lengths"
    if law.residual > MAX_LENGTH_RESIDUAL:
        return f"no law of batch and length fits: it misses a window by {law.residual:.0%}"
    peaks = [point.peak_bytes for point in points]
    growth = 1 - min(peaks) / max(peaks)
    if growth < LEAST_PEAK_GROWTH:
        return f"the windows differ by {growth:.1%} of their peaks, too little for a law"
    return law


def _fit(points: Sequence[Point]) -> LengthLaw | None:
    plain, square = _best(points, (0, 1)), _best(points, (0, 1, 2))
    if plain is None or square is None:
        return plain or square
    # As many numbers as windows fit everything and say nothing.
    if len(points) > MIN_POINTS and square.residual < WORTH * plain.residual:
        return square if square.per_square_bytes else plain
    return plain


def _best(points: Sequence[Point], allowed: tuple[int, ...]) -> LengthLaw | None:
    """Least squares of the relative misses, with no number below zero: all subsets are tried."""
    laws = [
        law
        for num in range(1, len(allowed) + 1)
        for terms in combinations(allowed, num)
        if (law := _solved(points, terms)) is not None
    ]
    return min(laws, key=lambda law: law.spread, default=None)


def _solved(points: Sequence[Point], terms: tuple[int, ...]) -> LengthLaw | None:
    rows = [[point.terms[term] / point.peak_bytes for term in terms] for point in points]
    size = len(terms)
    matrix = [
        [sum(row[i] * row[j] for row in rows) for j in range(size)] + [sum(row[i] for row in rows)]
        for i in range(size)
    ]
    values = solution(matrix)
    if values is None or min(values) < 0:
        return None
    numbers = [0.0, 0.0, 0.0]
    for term, value in zip(terms, values, strict=True):
        numbers[term] = value
    misses = [sum(row[i] * values[i] for i in range(size)) - 1 for row in rows]
    free = max(1, len(points) - size)
    spread = sqrt(sum(miss * miss for miss in misses) / free)
    return LengthLaw(
        fixed_bytes=numbers[0],
        per_token_bytes=numbers[1],
        per_square_bytes=numbers[2],
        residual=max(map(abs, misses)),
        spread=max(spread, LEAST_SPREAD),
        windows=tuple((point.num_samples, point.longest, point.peak_bytes) for point in points),
    )


def solution(matrix: list[list[float]]) -> list[float] | None:
    """The solution of a small system; `None` where it has none, or more than one.

    Args:
        matrix: its rows, each with the right side behind it.
    """
    size = len(matrix)
    # Each number of its own order of magnitude: equations are scaled first.
    scale = [sqrt(matrix[i][i]) or 1.0 for i in range(size)]
    rows = [
        [value / scale[i] / (scale[j] if j < size else 1.0) for j, value in enumerate(matrix[i])]
        for i in range(size)
    ]
    for place in range(size):
        best = max(range(place, size), key=lambda row: abs(rows[row][place]))
        if abs(rows[best][place]) < _TINY:
            return None
        rows[place], rows[best] = rows[best], rows[place]
        for other in range(size):
            if other != place:
                factor = rows[other][place] / rows[place][place]
                rows[other] = [
                    mine - factor * theirs
                    for mine, theirs in zip(rows[other], rows[place], strict=True)
                ]
    return [rows[i][size] / rows[i][i] / scale[i] for i in range(size)]
