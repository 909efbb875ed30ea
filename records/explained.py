"""Where the memory of a step goes."""

from __future__ import annotations

from typing import Literal

from .base import Count, Record
from .estimate import FakeTrial

WhyExplained = Literal["recommended", "largest that ran", "out of memory"]
"""Why a size is explained."""


class ExplainedSize(Record, frozen=True, kw_only=True):
    """Where the memory goes at one size; nothing of it was measured.

    Attributes:
        trial: its step on fake tensors; `None` if there was none, for this reason.
    """

    batch_size: Count
    why: WhyExplained
    trial: FakeTrial | None = None
    reason: str = ""


class MemoryExplained(Record, frozen=True, kw_only=True):
    """Where the memory of a script's steps goes.

    Attributes:
        sizes: that were explained, the recommended one first.
        elapsed_s: wall time that it took, after the search.
        reason: why nothing is known.
    """

    sizes: tuple[ExplainedSize, ...] = ()
    elapsed_s: float = 0.0
    reason: str = ""
