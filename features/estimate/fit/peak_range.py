"""The range in which the peak of a real step should lie, from a step on fake tensors. Pure."""

from __future__ import annotations

DOUBT = 0.005
"""The fake steps that were compared with real ones, on a CPU, were off by less:
`bench/estimate_accuracy.py`. Chosen once those errors were known."""


def peak_range(peak_bytes: float) -> tuple[int, int]:
    """The least and the most that the tensors of a real step should take at once.

    Args:
        peak_bytes: as fake steps say.
    """
    return int(peak_bytes * (1 - DOUBT)), int(peak_bytes * (1 + DOUBT)) + 1
