"""Step times above the largest micro-batch that fits: several micro-batches in one step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Accumulating:
    """A GPU that accumulates where its part of a step does not fit at once.

    Each micro-batch is counted as a whole step, the optimizer's part with it: a little too long.

    Attributes:
        micro_s: seconds of a step of one micro-batch by its size; never falls.
        largest: samples of the largest micro-batch.
    """

    micro_s: Callable[[int], float]
    largest: int

    def micro_batches(self, size: int) -> int:
        """How many micro-batches a step of that many samples needs."""
        return max(1, -(-size // self.largest))

    def step_s(self, size: int) -> float:
        """Seconds of a step of that many samples; never falls.

        Where smaller micro-batches are quicker in proportion, two of them may take less than a
        full one; the full one's time is said then, so that more samples never take less.

        >>> Accumulating(lambda b: 12 + 0.5 * b, 100).step_s(150)
        99.0
        """
        parts = self.micro_batches(size)
        if parts == 1:
            return self.micro_s(size)
        before = (parts - 1) * self.micro_s(self.largest)
        return max(before, parts * self.micro_s(-(-size // parts)))
