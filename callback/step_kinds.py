"""Steps that are alike, and their times."""

from __future__ import annotations

from math import exp, log
from random import Random
from typing import Generic, TypeVar

from .stretches import Stretches

CAPACITY = 512
"""Steps that stand behind a median; more would narrow no decision."""


class StepKind:
    """Steps of the same size and number of micro-batches.

    Attributes:
        times: (step, wait) in nanoseconds, of steps that followed one of the same kind: neither
            the first of a shape nor the short one of an epoch's end.
        unsettled: those of other steps, a few of them; all there is in very short runs.
        stretches: in place of both on a device that runs behind the host.
    """

    __slots__ = (
        "batch_size",
        "elapsed_ns",
        "micro_batches",
        "num_steps",
        "stretches",
        "times",
        "unsettled",
    )

    def __init__(self, batch_size: int, micro_batches: int) -> None:
        self.batch_size = batch_size
        self.micro_batches = micro_batches
        self.num_steps = 0
        self.elapsed_ns = 0
        self.times: Reservoir[tuple[int, int]] = Reservoir(CAPACITY, seed=batch_size)
        self.unsettled: list[tuple[int, int]] = []
        self.stretches = Stretches()

    @property
    def num_timed(self) -> int:
        """Steps behind its times."""
        return self.times.count or self.stretches.num_steps


# A uniform sample of a stream without end, in constant memory.

T = TypeVar("T")


class Reservoir(Generic[T]):
    """Keeps up to `capacity` values of a stream, each with the same probability.

    Algorithm L (Li 1994, ACM TOMS 20(4)): once the sample is full it is known in advance which
    value enters next, so that most values cost one comparison. The generator is this object's own;
    the training's random numbers are left alone.

    Attributes:
        values: the sample, in no order.
        count: values seen.
    """

    __slots__ = ("_capacity", "_enters", "_random", "_weight", "count", "values")

    def __init__(self, capacity: int, seed: int = 0) -> None:
        self.values: list[T] = []
        self.count = 0
        self._capacity = capacity
        self._random = Random(seed)
        self._weight = 1.0
        self._enters = -1

    def add(self, value: T) -> None:
        """The stream's next value."""
        position = self.count
        self.count = position + 1
        if position < self._capacity:
            self.values.append(value)
            if position == self._capacity - 1:
                self._plan(position)
        elif position == self._enters:
            self.values[self._random.randrange(self._capacity)] = value
            self._plan(position)

    def _plan(self, position: int) -> None:
        # 1 - random() lies in (0, 1], so that the logarithm is finite.
        self._weight *= exp(log(1 - self._random.random()) / self._capacity)
        skipped = log(1 - self._random.random()) / log(max(1 - self._weight, 1e-300))
        self._enters = position + 1 + int(skipped)
