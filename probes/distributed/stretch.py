"""Steps of one kind in a row, of which those in the middle count."""

from __future__ import annotations

from typing import NamedTuple


class Stretch(NamedTuple):
    """How many steps are made in a row.

    Attributes:
        num_first: that do not count: they find the caches as another kind left them, a core that
            slept is not at its full speed, and ranks that were woken together may share a core.
        num_counted: whose mean counts.
    """

    num_first: int
    num_counted: int

    @property
    def num_steps(self) -> int:
        """All of them. The last one keeps a rank that is early busy while others make theirs."""
        return self.num_first + self.num_counted + 1


LONG = Stretch(1, 1)
SHORT = Stretch(2, 4)
SHORTEST = Stretch(4, 12)
"""Of shorter steps more are made: what is done between two stretches would be a part of them, and
the scheduler moves processes once in some milliseconds."""

SHORT_STEP_S, SHORTEST_STEP_S = 0.05, 0.01
"""Steps below these seconds are short, or the shortest."""
