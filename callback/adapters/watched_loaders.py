"""A framework's own DataLoader, watched while it is looped over.

The object stays the same, since the framework holds on to it; its class becomes a subclass of its
class with an `__iter__` of ours, and gets its own class back when the run is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ..token_count import TokenCount


class FetchListener(Protocol):
    """Is told of each fetch of a watched loader."""

    def fetching(self) -> None:
        """The loop asks for a batch."""

    def fetched(self, batch: Any, wait_ns: int) -> None:
        """It got one after so long."""

    def ran_out(self) -> None:
        """There is none left in this epoch."""


def observe(loader: Any, listener: FetchListener) -> Callable[[], None]:
    """Watches a loader.

    Args:
        loader: a DataLoader of torch, or a subclass of it.
        listener: told of its fetches.

    Returns:
        A function that leaves the loader as it was.
    """
    native = type(loader)

    def fetches(iterator: Iterator[Any]) -> Iterator[Any]:
        clock = time.perf_counter_ns
        while True:
            listener.fetching()
            start = clock()
            try:
                batch = next(iterator)
            except StopIteration:
                listener.ran_out()
                return
            listener.fetched(batch, clock() - start)
            yield batch

    def iterate(self: Any) -> Iterator[Any]:
        # Made now, as without us: a DataLoader draws a random number for its iterator.
        return fetches(native.__iter__(self))

    watched = type(native.__name__, (native,), {"__iter__": iterate, "__module__": __name__})
    _become(loader, watched)

    def restore() -> None:
        if type(loader) is watched:
            _become(loader, native)

    return restore


def _become(loader: Any, kind: type) -> None:
    # Accelerate's loaders hide their class behind a property; the slot itself is object's.
    vars(object)["__class__"].__set__(loader, kind)


class BatchReader:
    """How many samples a batch holds.

    Args:
        batch_size: of a full batch, where it is known.
        tokens: is told of each batch.
    """

    def __init__(self, batch_size: int | None, tokens: TokenCount) -> None:
        from ...probes.loader.batch_size_reader import BatchSizeReader

        self._reader = BatchSizeReader()
        self._batch_size = batch_size
        self._tokens = tokens

    def read(self, batch: Any) -> int | None:
        """Samples in the batch, `None` where it does not tell."""
        declared, self._batch_size = self._batch_size, None
        try:
            if declared is not None:
                self._reader.learn(batch, declared)
            size = self._reader.read(batch)
        except Exception:  # noqa: BLE001  a batch of the user's own kind must not end the training
            size = None
        self._tokens.note(batch, size)
        return size
