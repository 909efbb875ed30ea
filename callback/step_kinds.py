"""Steps that are alike, and their times.

On a device that runs behind the host these are times of stretches; see device_times.py.
"""

from __future__ import annotations

from math import exp, log
from random import Random
from statistics import median
from typing import Generic, NamedTuple, TypeVar

CAPACITY = 512
"""Steps that stand behind a median; more would narrow no decision."""
MIN_STRETCH_STEPS = 5
"""Steps in a stretch at least: what happens every few steps is in most of them then."""
MAX_STRETCHES = 128
"""More are joined in pairs, so that memory stays bounded and rare events spread out."""


class Stretch(NamedTuple):
    """Steps of one kind and how long the device took for them.

    Attributes:
        steps: in it.
        elapsed_ns: their time.
        wait_ns: how long the loop waited for their data.
    """

    steps: int
    elapsed_ns: int
    wait_ns: int

    def __add__(self, other: Stretch) -> Stretch:  # type: ignore[override]
        return Stretch(*(mine + its for mine, its in zip(self, other, strict=True)))


EMPTY_STRETCH = Stretch(0, 0, 0)


class Stretches:
    """All stretches of one kind of step, in constant memory.

    Attributes:
        num_steps: in whole stretches and in the one that grows.
    """

    __slots__ = ("_growing", "_least", "_whole", "num_steps")

    def __init__(self) -> None:
        self.num_steps = 0
        self._least = MIN_STRETCH_STEPS
        self._whole: list[Stretch] = []
        self._growing = EMPTY_STRETCH

    def add(self, piece: Stretch) -> None:
        """A piece that the device is through with."""
        self.num_steps += piece.steps
        self._growing += piece
        if self._growing.steps < self._least:
            return
        self._whole.append(self._growing)
        self._growing = EMPTY_STRETCH
        if len(self._whole) == MAX_STRETCHES:
            pairs = zip(self._whole[::2], self._whole[1::2], strict=True)
            self._whole = [earlier + later for earlier, later in pairs]
            self._least *= 2

    @property
    def whole(self) -> list[Stretch]:
        """The stretches; in a very short run the one that grows, if it has any step."""
        return self._whole or [stretch for stretch in (self._growing,) if stretch.steps]

    @property
    def usual_steps(self) -> int:
        """Steps that a stretch goes over, their median; 0 without any."""
        whole = self.whole
        return round(median(stretch.steps for stretch in whole)) if whole else 0


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
