"""A size without a harmful short last batch, next to the best one of a goal.

Under the goal `knee` a clean size within the tolerance takes the place of the smallest such size
(knee.py chooses it). Under the others a clean size that costs little takes the place of the best:
of its throughput, of its samples per joule, or of the size itself where the largest is asked for.
Only sizes that ran are taken; the searches for speed try one for that, the search for the largest
has tried several near the limit.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..measured.energy import samples_per_joule
from ..measured.epoch_end import CLEAN_REACH
from ..measured.measurements import Measurements
from ..measured.once import once
from ..measured.trials import throughput

SPEED_COST = 0.02
"""Who asks for speed gives up no more of it than this; else the tolerance of the goal holds."""


def preferred(measurements: Measurements, best: int, worth: Mapping[int, float]) -> int:
    """The best size, or the clean one near it that costs less than the tolerance.

    Args:
        worth: what the goal compares by, for every size that ran and may be recommended.
    """
    if not measurements.harmful(best) or best not in worth:
        return best
    floor = (1 - cost_of(measurements)) * worth[best]
    near = [
        size
        for size, value in worth.items()
        if value >= floor
        and best / CLEAN_REACH <= size <= best * CLEAN_REACH
        and not measurements.harmful(size)
    ]
    return max(near, key=lambda size: (worth[size], -size), default=best)


def cost_of(measurements: Measurements) -> float:
    """The share of what the goal compares by that a clean size may cost."""
    tolerance = measurements.goal.tolerance
    return tolerance if measurements.goal.kind == "memory" else min(SPEED_COST, tolerance)


@once
def worth_of(measurements: Measurements) -> dict[int, float]:
    """Samples per joule under the goal `energy`, else samples per second, by size."""
    sizes = measurements.searched
    if measurements.goal.kind != "energy":
        return {size: throughput(trial) for size, trial in sizes.items()}
    per_joule = {size: samples_per_joule(trial) for size, trial in sizes.items()}
    return {size: value for size, value in per_joule.items() if value is not None}
