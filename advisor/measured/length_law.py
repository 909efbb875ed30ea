"""Peak memory = fixed + a x tokens + b x batch x length², fitted to windows at chosen lengths."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

from ...records import LengthLaw, Trial
from .least_squares import Fit, fits

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
    """The law with the least spread, of those that have no number below zero."""
    rows = [[term / point.peak_bytes for term in point.terms] for point in points]
    laws = [_law(points, fit) for fit in fits(rows, allowed)]
    return min(laws, key=lambda law: law.spread, default=None)


def _law(points: Sequence[Point], fit: Fit) -> LengthLaw:
    fixed, per_token, per_square = fit.numbers
    free = max(1, len(points) - fit.num_used)
    return LengthLaw(
        fixed_bytes=fixed,
        per_token_bytes=per_token,
        per_square_bytes=per_square,
        residual=max(map(abs, fit.misses)),
        spread=max(sqrt(fit.squares / free), LEAST_SPREAD),
        windows=tuple((point.num_samples, point.longest, point.peak_bytes) for point in points),
    )
