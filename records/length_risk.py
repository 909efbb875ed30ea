"""Memory over an epoch whose samples differ in length: the law, and the chance of running out."""

from __future__ import annotations

from typing import Literal

from .base import Record


class LengthLaw(Record, frozen=True, kw_only=True):
    """Peak memory = fixed + per token x tokens + per square x samples x length², fitted.

    Tokens are samples times the longest, padding included.

    Attributes:
        residual: largest relative deviation of a window used.
        spread: standard error of a peak by the law, relative.
        windows: samples, longest sample and peak of each.
    """

    fixed_bytes: float
    per_token_bytes: float
    per_square_bytes: float
    residual: float
    spread: float
    windows: tuple[tuple[int, int, int], ...]


class EpochRisk(Record, frozen=True, kw_only=True):
    """The memory that one epoch of a size may need.

    Attributes:
        chance: that some batch of an epoch takes more memory than there is, 0..1.
        peak_bytes: of its worst batch, by the law.
    """

    batch_size: int
    chance: float
    peak_bytes: float


class MemoryRisk(Record, frozen=True, kw_only=True):
    """Memory over an epoch whose samples differ in length.

    Attributes:
        risks: of sizes that were tried, ascending.
        longest: sample that is known.
        num_samples: of an epoch.
        basis: what the lengths are known from.
        confidence: `measured` where all lengths of an epoch are known; the peaks are by the law.
    """

    law: LengthLaw
    capacity_bytes: int
    risks: tuple[EpochRisk, ...]
    longest: int
    num_samples: int
    basis: str
    confidence: Literal["measured", "estimate"]

    def at(self, batch_size: int) -> EpochRisk | None:
        """The risk of one size."""
        return next((risk for risk in self.risks if risk.batch_size == batch_size), None)
