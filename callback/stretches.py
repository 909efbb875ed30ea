"""Stretches of steps of one kind, on a device that runs behind the host; see device_times.py."""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

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
