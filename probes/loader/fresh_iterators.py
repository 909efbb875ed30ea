"""A fresh iterator behind the one that the script holds."""

from __future__ import annotations

from typing import Any

from .cycled_dataset import CycledDataset


def renewed(loader: Any, iterator: Any, inner: Any) -> Any:
    """Makes the script's iterator read from a fresh one from now on, and returns that.

    Args:
        loader: `None` where it is gone.
        iterator: that the script holds.
        inner: what that has read from so far.

    Raises:
        StopIteration: the loader is gone.
    """
    if loader is None:
        raise StopIteration
    if hasattr(inner, "_shutdown_workers"):
        inner._shutdown_workers()
    if loader._iterator is inner:
        loader._iterator = None  # persistent workers: it would be used again
    fresh = type(iterator)(loader)
    iterator.__dict__["_batchadvisor_inner"] = fresh
    return fresh


def renewed_over(stream: CycledDataset, loader: Any, iterator: Any, inner: Any) -> Any:
    """Makes the iterator read another stream; a pass that the script begins later has none of its
    first samples."""
    loader.__dict__["dataset"] = stream
    fresh = renewed(loader, iterator, inner)
    loader.__dict__["dataset"] = stream.starting_with((), 0)
    return fresh
