"""What a step's peak is stated to lie between, from a step on fake tensors. Pure."""

from __future__ import annotations

DOUBT = 0.005
"""A fake step is off a real one by no more, on a CPU: see `bench/estimate_accuracy.py`."""


def peak_range(peak_bytes: float) -> tuple[int, int]:
    """The least and the most that the tensors of a real step should take at once.

    Args:
        peak_bytes: as fake steps say.
    """
    return int(peak_bytes * (1 - DOUBT)), int(peak_bytes * (1 + DOUBT)) + 1
