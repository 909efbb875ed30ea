"""How many samples a batch holds, read from the batch itself.

The axis that carries the batch is learnt from a batch whose size is known, because a feature axis
may happen to be as long as the size asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

_MAX_LEAVES = 64
_MAX_DEPTH = 6

Axis = tuple[int, int]
"""Position of a leaf in the batch, and the axis of its shape."""
_ITEMS = 2
"""In place of an axis: the length of a list with an item for each sample. Axes go before it."""
DRAWN = "drawn"
"""Proof of a batch that is somewhat smaller than what was fetched from the dataset for it."""
Path = tuple[tuple[str, Any], ...]
"""How to get from a batch to one of its leaves: items and attributes."""


class BatchGauge:
    """Learns where a batch carries its size, then reads it."""

    def __init__(self) -> None:
        self._axes: set[Axis] | None = None
        self._may_be: dict[Axis, int] | None = None
        self._short_cut: Callable[[Any], int] | None = None

    def learn(self, batch: Any, num_samples: int) -> None:
        """Keeps the axes that are as long as `num_samples`; the first call proposes them.

        Where a collate function leaves samples out, the first whole batch does, with axes that
        fell short before.
        """
        self._short_cut = None
        lengths = {axis: length for axis, length, _ in _axes(batch)}
        seen = {axis for axis, length in lengths.items() if length == num_samples}
        near = {axis for axis, length in lengths.items() if falls_short(length, num_samples)} | seen
        before = lengths if self._may_be is None else self._may_be
        self._may_be = {axis: length for axis, length in before.items() if axis in near}
        if self._axes is None:
            self._axes = seen
        elif not self._axes:  # an axis of a feature keeps its length, whatever is asked for
            self._axes = {axis for axis in seen if before.get(axis, num_samples) != num_samples}
        elif self._axes & (seen or near):
            self._axes &= seen or near

    @property
    def undecided(self) -> bool:
        """Whether batches were as long as none of their axes, and one of these may carry them."""
        return self._axes == set() and bool(self._may_be)

    def read(self, batch: Any) -> int | None:
        """Samples in the batch, or `None` when no axis carries them (graphs, packed text)."""
        short_cut = self._short_cut
        if short_cut is not None:
            try:
                return short_cut(batch)
            except (LookupError, AttributeError, TypeError):
                self._short_cut = None  # batches of another build: look again
        found = [
            (axis[1], axis[0], length, path)
            for axis, length, path in _axes(batch)
            if (axis in self._axes if self._axes is not None else axis[1] == 0)
        ]
        if not found:
            return None
        # Axis 0 first: where several were never told apart, it is the batch by convention.
        axis, _, length, path = min(found, key=lambda one: one[:2])
        self._short_cut = _short_cut(path, axis, _leaf(batch, path))
        return length


def falls_short(num_samples: int, num_drawn: int) -> bool:
    """Whether a batch can be what a collate function leaves of so many samples.

    More than half has to be left: a length that never changes, as one of a feature, cannot pass
    at a size and at twice that size.
    """
    return num_drawn < 2 * num_samples < 2 * num_drawn


def leaves(value: Any) -> Iterator[Any]:
    """Tensors and lists of plain values inside a batch."""
    return (leaf for _, leaf in islice(_leaves(value, (), _MAX_DEPTH), _MAX_LEAVES))


def _leaf(batch: Any, path: Path) -> Any:
    """The leaf at the end of `path`."""
    for kind, key in path:
        batch = batch[key] if kind == "item" else getattr(batch, key)
    return batch


def _short_cut(path: Path, axis: int, leaf: Any) -> Callable[[Any], int]:
    """Reads the length of one axis of the leaf at the end of `path`; made for one kind of batch.

    It runs once a step with cold caches, where every line of code counts.
    """
    if getattr(leaf, "shape", None) is None:
        return lambda batch: len(_leaf(batch, path))
    if not path:
        return lambda batch: int(batch.shape[axis])
    kind, key = path[0]
    if len(path) == 1 and kind == "item":
        return lambda batch: int(batch[key].shape[axis])
    return lambda batch: int(_leaf(batch, path).shape[axis])


def _axes(batch: Any) -> Iterator[tuple[Axis, int, Path]]:
    for position, (path, leaf) in enumerate(_leaves(batch, (), _MAX_DEPTH)):
        if position >= _MAX_LEAVES:
            return
        shape = getattr(leaf, "shape", None)
        if shape is None:  # a list of plain values: one sample each
            yield (position, 0), len(leaf), path
        else:
            for axis, length in enumerate(tuple(shape)[:2]):
                yield (position, axis), int(length), path
    for position, (path, items) in enumerate(_lists(batch)):
        yield (position, _ITEMS), len(items), path


def _lists(batch: Any) -> Iterator[tuple[Path, Sequence[Any]]]:
    """The batch where it is a list of samples, and lists in it: images of a size each."""
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(batch, Mapping):
        parts = batch.items()
    elif isinstance(batch, Sequence) and not isinstance(batch, (str, bytes)):
        parts = enumerate(batch[:_MAX_LEAVES])
        if not any(hasattr(one, "shape") for one in batch):  # inputs and targets are no samples
            yield (), batch
    for key, one in parts:
        if isinstance(one, Sequence) and one and all(map(_is_container, one)):
            yield (("item", key),), one


def _leaves(value: Any, path: Path, depth: int) -> Iterator[tuple[Path, Any]]:
    """Tensors and lists of plain values inside `value`, in a fixed order, and how to get there."""
    if depth == 0 or isinstance(value, (str, bytes)):
        return
    if hasattr(value, "shape"):
        try:
            dimensions = len(value.shape)
        except TypeError:
            return
        if dimensions:
            yield path, value
        return
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _leaves(one, (*path, ("item", key)), depth - 1)
    elif isinstance(value, Sequence):
        nested = [(key, one) for key, one in enumerate(value) if _is_container(one)]
        if value and not nested:
            yield path, value
        for key, one in nested[:_MAX_LEAVES]:
            yield from _leaves(one, (*path, ("item", key)), depth - 1)
    elif hasattr(value, "__dict__"):
        for name, one in vars(value).items():
            yield from _leaves(one, (*path, ("attribute", name)), depth - 1)


def _is_container(value: Any) -> bool:
    return hasattr(value, "shape") or (
        isinstance(value, (Mapping, Sequence)) and not isinstance(value, (str, bytes))
    )
