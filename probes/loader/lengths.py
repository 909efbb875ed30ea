"""Inputs of varying length: how large the batches of a trial were, and the longest samples first.

Where samples differ in length, the peak of memory is set by the longest batch, which a short
window seldom sees. The elements of a batch over its samples tell how long it was, padding included.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from math import prod
from typing import Any

from ...records import InputSize
from .batch_size_reader import leaves

EQUAL_BATCHES = 100
"""After so many batches of one length, inputs are taken to be of one length."""
SCAN_SAMPLES = 20_000
SCAN_S = 20.0
"""The longest samples are looked for among so many, for at most so long."""
FIRST_BATCHES = 4
"""Batches of the longest samples at the beginning of a trial; its warm-up takes them."""


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
        if not num_samples or self._num_equal >= EQUAL_BATCHES:
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

    def take(self) -> InputSize | None:
        """What the trial's batches were like; `None` where they have no tensors or do not vary."""
        if not self._num_batches or not self._vary:
            return None
        return InputSize(
            num_batches=self._num_batches, smallest=self._smallest, largest=self._largest
        )


def elements(value: Any) -> int:
    """Elements of all tensors of a batch or a sample; of plain lists their lengths."""
    total = 0
    for leaf in leaves(value):
        shape = getattr(leaf, "shape", None)
        total += len(leaf) if shape is None else prod(int(length) for length in shape)
    return total


class LongestFirst:
    """Indices of the longest samples, in descending order, for ever.

    Args:
        dataset: of a map style; each sample is loaded once, within limits.
        indices: those that the script's own sampler draws.
    """

    def __init__(self, dataset: Any, indices: Iterator[Any]) -> None:
        self.indices = self._scan(dataset, indices)

    def _scan(self, dataset: Any, indices: Iterator[Any]) -> list[Any]:
        end_s = time.monotonic() + SCAN_S
        longest: list[tuple[int, Any]] = []
        for index in islice(indices, SCAN_SAMPLES):
            longest.append((elements(_sample(dataset, index)), index))
            if time.monotonic() > end_s:
                break
        longest.sort(key=lambda entry: -entry[0])
        return [index for _, index in longest]

    def batch(self, size: int) -> list[Any]:
        """The `size` longest, repeated where there are fewer."""
        repeated: Sequence[Any] = self.indices
        if not repeated:
            return []
        return [repeated[position % len(repeated)] for position in range(size)]


def _sample(dataset: Any, index: Any) -> Any:
    """One sample, fetched as torch's DataLoader does it."""
    many = getattr(dataset, "__getitems__", None)
    return many([index])[0] if many else dataset[index]
