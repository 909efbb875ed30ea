"""Inputs of varying length: how large the batches of a trial were.

The elements of a batch over its samples tell how long it was, padding included.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ...records import InputSize
from .batch_structure import BATCH_DEPTH, paths

MOST_PARTS = 1024
"""Tensors and lists of a batch that are counted: images and targets of some hundred samples."""
EQUAL_BATCHES = 100
"""After so many batches of one length, only the first of each trial is measured."""


class Lengths:
    """Elements per sample of the batches of one trial."""

    def __init__(self) -> None:
        self._smallest = self._largest = 0.0
        self._num_batches = 0
        self._num_equal = 0
        self._last = 0.0
        self._vary = False

    def begin(self) -> None:
        """A trial begins."""
        self._num_batches = 0

    def note(self, batch: Any, num_samples: int | None) -> None:
        """A batch went to the script."""
        # The first of a trial is always measured: it may have been chosen by its length.
        if not num_samples or (self._num_batches and self._num_equal >= EQUAL_BATCHES):
            return
        value = elements(batch) / num_samples
        if not value:
            return
        self._num_equal = self._num_equal + 1 if value == self._last else 0
        self._vary = self._vary or value != (self._last or value)
        self._last = value
        if not self._num_batches:
            self._smallest = self._largest = value
        self._smallest, self._largest = min(self._smallest, value), max(self._largest, value)
        self._num_batches += 1

    def take(self, *, always: bool = False) -> InputSize | None:
        """Sizes of the trial's batches; `None` where they have no tensors or do not vary.

        Args:
            always: also where they do not vary: its samples were chosen by length, so that it may
                not see that; or nothing else shows how much a batch holds.
        """
        if not self._num_batches or not (self._vary or always):
            return None
        return InputSize(
            num_batches=self._num_batches, smallest=self._smallest, largest=self._largest
        )


def elements(value: Any) -> int:
    """Elements of all tensors of a batch or a sample; of plain lists their lengths.

    0 where it has more parts than are counted: a share of them would be taken for shorter samples,
    the shorter the more samples the batch has.
    """
    total = 0
    for num, (_, leaf) in enumerate(paths(value, (), BATCH_DEPTH, MOST_PARTS)):
        if num == MOST_PARTS - 1:
            return 0
        shape = getattr(leaf, "shape", None)
        total += len(leaf) if shape is None else prod(int(length) for length in shape)
    return total
