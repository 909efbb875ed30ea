"""Batches of a generator, or of another iterator of Python's own, which come but once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MAX_REMEMBERED = 10_000
"""Batches that come again; an endless generator would fill the memory that is measured."""


class OnePass:
    """Passes over the batches of an iterator, each from its start: what it gave is kept.

    Args:
        source: the script's own.
    """

    def __init__(self, source: Iterator[Any]) -> None:
        self._source = source
        self._kept: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        place = 0
        while True:
            if place == len(self._kept):
                try:
                    batch = next(self._source)
                except StopIteration:
                    return
                if place < MAX_REMEMBERED:
                    self._kept.append(batch)
            else:
                batch = self._kept[place]
            place = min(place + 1, len(self._kept))
            yield batch


def passed_again(sampler: Any) -> Any:
    """The sampler itself; one that can be passed only once in a way that it can be again.

    A class of the script's may begin anew in its `__iter__`.
    """
    if not isinstance(sampler, Iterator) or hasattr(sampler, "__dict__"):
        return sampler
    return type(type(sampler).__name__, (OnePass,), {})(sampler)  # records name its class
