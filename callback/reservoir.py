"""A uniform sample of a stream without end, in constant memory."""

from __future__ import annotations

from math import exp, log
from random import Random
from typing import Generic, TypeVar

T = TypeVar("T")


class Reservoir(Generic[T]):
    """At most `capacity` values, each of the stream's with the same probability.

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
