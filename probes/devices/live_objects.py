"""The objects of this process, looked through as far as a training can wait for it.

Python has no list of its objects that grows piece by piece: to ask for it takes the longer the more
there are, and stops the training. So the interpreter's count of blocks is read first, then the list
is counted, and only then each object is looked at.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any

MAX_BLOCKS = 30_000_000
"""Memory blocks of the interpreter, at least one for each object: with more no list is made."""
MAX_OBJECTS = 3_000_000
"""Objects that are looked at, at most; more would hold a training up."""
MAX_LOOK_S = 2.0
"""Seconds that a look takes at most; checked between its parts."""
STRIDE = 1 << 16


class LookTooLongError(RuntimeError):
    """The look would hold the training up; the text says why."""


class Bound:
    """Bounds on the cost of a look.

    Args:
        max_objects, max_blocks: see `MAX_OBJECTS`, `MAX_BLOCKS`.
        max_s: see `MAX_LOOK_S`; from now on.
        clock: seconds.
    """

    def __init__(
        self,
        *,
        max_objects: int = MAX_OBJECTS,
        max_blocks: int = MAX_BLOCKS,
        max_s: float = MAX_LOOK_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_objects = max_objects
        self._max_blocks = max_blocks
        self._max_s = max_s
        self._clock = clock
        self._since_s = clock()

    @property
    def is_over(self) -> bool:
        """Whether the time is."""
        return self._clock() - self._since_s > self._max_s

    def check(self) -> None:
        """Goes on only while there is time.

        Raises:
            LookTooLongError: there is none.
        """
        if self.is_over:
            msg = f"looking through the process's objects takes more than {self._max_s:g} s"
            raise LookTooLongError(msg)

    def listed(self) -> list[Any]:
        """All objects that the collector knows; a list that keeps them alive.

        Raises:
            LookTooLongError: they are too many.
        """
        if sys.getallocatedblocks() > self._max_blocks:
            raise LookTooLongError(_too_many(self._max_blocks, "blocks of memory"))
        every = gc.get_objects()
        if len(every) > self._max_objects:
            raise LookTooLongError(_too_many(self._max_objects, "objects"))
        self.check()
        return every


def _too_many(most: int, what: str) -> str:
    return f"the process has more than {most:,} {what}, too many to look through in a training"


def objects_of(*bases: type, bound: Bound) -> list[list[Any]]:
    """The process's objects of these types, a list for each.

    By their types alone: asking objects themselves may run code of theirs.

    Args:
        bases: an object counts for the first that its type is of.
        bound: what it may cost.

    Raises:
        LookTooLongError: it would cost more.
    """
    kept: list[list[Any]] = [[] for _ in bases]
    kinds: dict[type, list[Any] | None] = {}
    for number, each in enumerate(bound.listed()):
        if number % STRIDE == 0:
            bound.check()
        kind = type(each)
        if kind not in kinds:
            places = (at for at, base in enumerate(bases) if issubclass(kind, base))
            place = next(places, None)
            kinds[kind] = None if place is None else kept[place]
        known = kinds[kind]
        if known is not None:
            known.append(each)
    return kept
