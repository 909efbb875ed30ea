"""Laws of memory, in words."""

from __future__ import annotations

from ...units import format_bytes
from .wording import bytes_per_sample


def line_text(fixed_bytes: float, sample_bytes: float) -> str:
    """A line in the batch size.

    >>> line_text(-(2**30), 2**20)
    '-1.00 GiB + 1.00 MiB x batch'
    """
    sign = "-" if fixed_bytes < 0 else ""
    return f"{sign}{format_bytes(abs(fixed_bytes))} + {bytes_per_sample(sample_bytes)} x batch"


def law_text(floor_bytes: float, fixed_bytes: float, sample_bytes: float) -> str:
    """The law of a step: the larger of what any step takes, and of a line.

    >>> law_text(2**30, 0, 2**20)
    'max(1.00 GiB, 0 B + 1.00 MiB x batch)'
    """
    return f"max({format_bytes(floor_bytes)}, {line_text(fixed_bytes, sample_bytes)})"
