"""How far a law of memory may be off, for a batch unlike those of its windows.

The numbers of the law come from a few windows, each off by some noise. For a batch with the terms x
(1, tokens, tokens x length), divided by its peak, the relative error has the variance

    spread² x (1 + xᵀ (RᵀR)⁻¹ x)

with the same terms of each window as rows of R: the noise of one peak, and that of the numbers. The
spread itself is estimated from as many windows as there are more than numbers, so that the error
over it has Student's distribution; its integral for whole degrees of freedom is that of Abramowitz
and Stegun, 26.7.3 and 26.7.4. Windows that agree by chance do not make the law surer than equal
batches are: of this distribution and a normal one of that spread, the wider tail counts.
"""

from __future__ import annotations

from math import asinh, atan, cos, erfc, pi, sin, sinh, sqrt
from typing import NamedTuple

from ...records import LengthLaw
from .least_squares import solution
from .length_law import LEAST_SPREAD, terms_of

NODES = 201
"""Places at which the error is looked at, denser in the middle."""
ERROR_REACH = 100.0
"""Standard errors within which it is; what lies beyond counts at the last place."""


class LawError(NamedTuple):
    """The relative error of the law for one batch.

    Attributes:
        known: standard error that there is however well the windows agree.
        estimated: standard error as the windows tell it.
        freedom: windows more than numbers, 0 where nothing was estimated.
    """

    known: float
    estimated: float = 0.0
    freedom: int = 0

    @property
    def standard(self) -> float:
        """The larger of both."""
        return max(self.known, self.estimated)

    def places(self) -> list[tuple[float, float]]:
        """Relative errors, and the chance of each."""
        reach = asinh(ERROR_REACH)
        edges = [
            self.standard * sinh(reach * (2 * place / NODES - 1)) for place in range(NODES + 1)
        ]
        above = [self.above(edge) for edge in edges]
        above[0], above[-1] = 1.0, 0.0
        return [
            ((edges[place] + edges[place + 1]) / 2, above[place] - above[place + 1])
            for place in range(NODES)
        ]

    def above(self, error: float) -> float:
        """The chance of a larger one."""
        if error < 0:
            return 1 - self.above(-error)
        tail = 0.5 * erfc(error / self.known / sqrt(2))
        if self.freedom and self.estimated:
            tail = max(tail, _student(error / self.estimated, self.freedom))
        return tail


def error_of(law: LengthLaw, num_samples: float, length: float) -> LawError:
    """Finds the error for a batch of equally long samples; without windows it is the law's own
    spread."""
    rows = [_row(law, *window) for window in law.windows]
    if not rows:
        return LawError(law.spread)
    asked = _row(law, num_samples, length, _peak(law, num_samples, length))
    solved = solution(rows, asked) or [0.0] * len(asked)
    wider = sqrt(1 + max(0.0, sum(part * term for part, term in zip(solved, asked, strict=True))))
    freedom = max(1, len(rows) - len(asked))
    misses = [_peak(law, num, longest) / peak - 1 for num, longest, peak in law.windows]
    estimated = sqrt(sum(miss * miss for miss in misses) / freedom)
    return LawError(LEAST_SPREAD * wider, estimated * wider, freedom)


def _numbers(law: LengthLaw) -> tuple[float, float, float]:
    return law.fixed_bytes, law.per_token_bytes, law.per_square_bytes


def _peak(law: LengthLaw, num_samples: float, length: float) -> float:
    terms = terms_of(num_samples, length)
    return sum(number * term for number, term in zip(_numbers(law), terms, strict=True))


def _row(law: LengthLaw, num_samples: float, length: float, peak_bytes: float) -> list[float]:
    """The terms of the law's own numbers over the peak."""
    pairs = zip(_numbers(law), terms_of(num_samples, length), strict=True)
    return [term / peak_bytes for number, term in pairs if number > 0]


def _student(error: float, freedom: int) -> float:
    """The chance of a larger one, for an error in standard errors, not below 0."""
    angle = atan(error / sqrt(freedom))
    square = cos(angle) ** 2
    odd = freedom % 2
    term, total = (cos(angle) if odd else 1.0), 0.0
    for place in range(odd + 2, freedom + 1, 2):
        total += term
        term *= square * (place - 1) / place
    inside = 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total
    return 0.5 * (1 - inside)
