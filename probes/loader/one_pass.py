"""Samples or batches of a generator, or another iterator of Python's own, which come but once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

MAX_REMEMBERED = 10_000
"""Batches, or samples, that come again; an endless generator would fill the memory that is
measured."""


class OnePass:
    """Passes over the items of an iterator, each from its start: what it gave is kept.

    The script's own passes go on where the last of them ended, as without us.

    Args:
        source: the script's own.

    Attributes:
        goes_on: a pass whose first item is asked for now is the script's own.
    """

    def __init__(self, source: Iterator[Any]) -> None:
        self._source = source
        self._kept: list[Any] = []
        self._own_place = 0
        self.goes_on = False

    def __iter__(self) -> Iterator[Any]:
        is_own, place = self.goes_on, 0
        while True:
            if is_own:
                place = self._own_place
            if place == len(self._kept):
                try:
                    item = next(self._source)
                except StopIteration:
                    return
                if place < MAX_REMEMBERED:
                    self._kept.append(item)
            else:
                item = self._kept[place]
            place = min(place + 1, len(self._kept))
            if is_own:
                self._own_place = place
            yield item


def passed_again(sampler: Any) -> Any:
    """The sampler itself; one that can be passed only once in a way that it can be again.

    A class of the script's may begin anew in its `__iter__`.
    """
    if not isinstance(sampler, Iterator) or hasattr(sampler, "__dict__"):
        return sampler
    return type(type(sampler).__name__, (OnePass,), {})(sampler)  # records name its class


def pass_samples_again(loader: Any, batch_sampler: Any) -> None:
    """Lets the sampler that a loader's batch sampler draws from be passed again.

    Args:
        loader: a DataLoader.
        batch_sampler: the script's own.
    """
    sampler = getattr(batch_sampler, "sampler", None)
    again = passed_again(sampler)
    if again is sampler:
        return
    with contextlib.suppress(AttributeError):  # it does not let itself be set
        batch_sampler.sampler = again
        if loader.sampler is sampler:
            loader.__dict__["sampler"] = again  # guarded against a change by accident


def next_of_own(native: Any, own_pass: Iterator[Any]) -> Any:
    """The next batch of a pass that the script made itself.

    Args:
        native: what the pass is over.

    Raises:
        StopIteration: it ends.
    """
    passes = [
        found for found in (native, getattr(native, "sampler", None)) if isinstance(found, OnePass)
    ]
    for each in passes:
        each.goes_on = True
    try:
        return next(own_pass)
    finally:
        for each in passes:
            each.goes_on = False
