"""Several devices: which are of one model, and whether one is weaker than its twin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ...records import Spread

MATTERS = 0.05
"""A difference in samples per second below this share is none."""


def representatives(models: Sequence[str]) -> tuple[int, ...]:
    """Positions of the devices to probe in full: the first of each model.

    >>> representatives(["A100", "T4", "A100", "T4", "L4"])
    (0, 1, 4)
    """
    return tuple(place for place, model in enumerate(models) if model not in models[:place])


def twin_of(models: Sequence[str], place: int) -> int | None:
    """Position of the device that was probed in full for this one, `None` for that one itself."""
    first = models.index(models[place])
    return None if first == place else first


def compare(ratio: Spread) -> Literal["equal", "weak", "strong", "cannot tell"]:
    """Judges the ratio of two twins' speeds."""
    if ratio.high < 1 - MATTERS:
        return "weak"
    if ratio.low > 1 + MATTERS:
        return "strong"
    if ratio.low > 1 - 2 * MATTERS and ratio.high < 1 + 2 * MATTERS:
        return "equal"
    return "cannot tell"
