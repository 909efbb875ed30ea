"""Steps of one kind in a row, of which those in the middle count."""

from __future__ import annotations

from typing import NamedTuple

SHORT_STEP_S = 0.05
"""Of shorter steps more are made: what is done between two stretches would be a part of them."""


class Stretch(NamedTuple):
    """How many steps are made in a row.

    The first find the caches as another kind left them, and a core that slept is not at its full
    speed after one short step. The last one keeps a rank that is early busy while others make
    theirs that count.
    """

    is_short: bool

    @property
    def num_first(self) -> int:
        """That do not count."""
        return 2 if self.is_short else 1

    @property
    def num_counted(self) -> int:
        """Whose mean counts."""
        return 3 if self.is_short else 1

    @property
    def num_steps(self) -> int:
        """All of them."""
        return self.num_first + self.num_counted + 1
