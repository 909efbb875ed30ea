"""Parts that every record shares: the base, the schema's version, a spread."""

from __future__ import annotations

from typing import Annotated

import msgspec

SCHEMA_VERSION = "1.1"
"""Major.minor. A reader takes any minor version of its own major one."""


Count = Annotated[int, msgspec.Meta(ge=1)]
"""A number of samples, steps or ranks: at least one."""


WIDE = 0.1
"""Narrower intervals are given as plus or minus, however one-sided."""
VERY_WIDE = 0.5
"""Wider ones are always given as low to high."""
SKEWED = 2.0
"""An interval is skewed whose one side is this many times as long as the other."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all records."""


class Spread(Record, frozen=True, kw_only=True):
    """A median with its order-statistic confidence interval.

    Attributes:
        median, low, high: in the unit of the field that holds the spread.
        num_samples: how many values stand behind it.
        confidence: nominal coverage of [low, high], 0..1.
    """

    median: float
    low: float
    high: float
    num_samples: int
    confidence: float

    @property
    def is_interval(self) -> bool:
        """Whether [low, high] is an interval: one value alone has none."""
        return self.num_samples > 1

    @property
    def relative_half_width(self) -> float:
        """Half the interval over the median; 0.02 means ±2 %. Says nothing of one value alone."""
        return (self.high - self.low) / 2 / self.median if self.median > 0 else float("inf")

    @property
    def is_skewed(self) -> bool:
        """Whether a plus or minus would misstate the interval: it is wide, and one-sided or so
        wide that it would reach to zero.
        """
        if not self.is_interval or self.relative_half_width < WIDE:
            return False
        if self.relative_half_width > VERY_WIDE:
            return True
        below, above = self.median - self.low, self.high - self.median
        return max(below, above) > SKEWED * min(below, above)
