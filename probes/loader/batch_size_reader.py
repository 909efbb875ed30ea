"""How many samples a batch holds, read from the batch itself.

The axis that carries the batch is learnt from a batch whose size is known, because a feature axis
may happen to be as long as the size asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from .batch_structure import BATCH_DEPTH, MAX_LEAVES, Counted, Path, counted, lists, paths

Axis = tuple[int, int]
"""Position of a leaf in the batch, and the axis of its shape."""
_ITEMS = 2
"""Stands in place of an axis: the length of a list with an item for each sample."""
DRAWN = "drawn"
"""Proof of a batch that is somewhat smaller than what was fetched from the dataset for it."""


BY_BUDGET = "budget"
"""Proof of a batch that was cut by the budget that was asked for, whatever samples it holds."""
DRAWN_OTHERWISE = (DRAWN, BY_BUDGET)
"""Proofs of batches whose samples are counted one by one, beside the size that was asked for."""


class BatchSizeReader:
    """Learns where a batch carries its size, then reads it."""

    def __init__(self) -> None:
        self._axes: set[Axis] | None = None
        self._may_be: dict[Axis, int] | None = None
        self._place: Counted | None = None
        self._short_cut: Callable[[Any], int] | None = None

    def learn(self, batch: Any, num_samples: int) -> None:
        """Keeps the axes that are as long as `num_samples`; the first call proposes them.

        Where a collate function leaves samples out, the first whole batch does, with axes that
        fell short before.
        """
        self._short_cut = None
        self._place = counted(batch, num_samples)
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
        candidates = [
            (axis[1], axis[0], length, path)
            for axis, length, path in _axes(batch)
            if (axis in self._axes if self._axes is not None else axis[1] in (0, _ITEMS))
        ]
        if not candidates:
            return None
        place = counted(batch) if self._place is None else self._place
        if place == "unknown" and self._axes is None:
            return None
        items = next(
            (
                candidate
                for candidate in candidates
                if candidate[0] == _ITEMS and candidate[3] == place
            ),
            None,
        )
        if items is not None:
            self._short_cut = _short_cut(items[3], _ITEMS, _leaf(batch, items[3]))
            return items[2]
        # Axis 0 first: where several were never told apart, it is the batch by convention.
        axis, _, length, path = min(candidates, key=lambda candidate: candidate[:2])
        self._short_cut = _short_cut(path, axis, _leaf(batch, path))
        return length

    def carriers(self, batch: Any, num_samples: int) -> dict[Path, int]:
        """Parts of the batch that are as long as it has samples, and along which axis.

        A list with an item for each sample is one, along axis 0.
        """
        axes: dict[Path, int] = {}
        for (position, axis), length, path in _axes(batch):
            if length != num_samples:
                continue
            if axis == _ITEMS:
                if isinstance(self._place, tuple):
                    axes[path] = 0
            elif (position, axis) in self._axes if self._axes else not axis:
                axes.setdefault(path, axis)
        return axes


def falls_short(num_samples: int, num_drawn: int) -> bool:
    """Whether a batch can be what a collate function leaves of so many samples.

    More than half has to be left: a length that never changes, as one of a feature, cannot pass
    at a size and at twice that size.
    """
    return num_drawn < 2 * num_samples < 2 * num_drawn


def leaves(value: Any) -> Iterator[Any]:
    """Tensors and lists of plain values inside a batch."""
    return (leaf for _, leaf in islice(paths(value, (), BATCH_DEPTH), MAX_LEAVES))


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
    for position, (path, leaf) in enumerate(paths(batch, (), BATCH_DEPTH)):
        if position >= MAX_LEAVES:
            return
        shape = getattr(leaf, "shape", None)
        if shape is None:  # a list of plain values: one sample each
            yield (position, 0), len(leaf), path
        else:
            for axis, length in enumerate(tuple(shape)[:2]):
                yield (position, axis), int(length), path
    for position, (path, items) in enumerate(lists(batch)):
        yield (position, _ITEMS), len(items), path
