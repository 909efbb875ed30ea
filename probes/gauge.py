"""How many samples a batch holds, read from the batch itself.

The axis that carries the batch is learnt from a batch whose size is known, because a feature axis
may happen to be as long as the size asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_MAX_LEAVES = 64
_MAX_DEPTH = 6

Axis = tuple[int, int]
"""Position of a leaf in the batch, and the axis of its shape."""


class BatchGauge:
    """Learns where a batch carries its size, then reads it."""

    def __init__(self) -> None:
        self._axes: set[Axis] | None = None

    def learn(self, batch: Any, num_samples: int) -> None:
        """Keeps the axes that are as long as `num_samples`; the first call proposes them."""
        seen = {axis for axis, length in _axes(batch) if length == num_samples}
        if self._axes is None:
            self._axes = seen
        elif self._axes & seen:
            self._axes &= seen

    def read(self, batch: Any) -> int | None:
        """Samples in the batch, or `None` when no axis carries them (graphs, packed text)."""
        lengths = dict(_axes(batch))
        if self._axes is None:
            return next((length for (_, axis), length in lengths.items() if axis == 0), None)
        known = sorted(axis for axis in self._axes if axis in lengths)
        # Axis 0 first: where several were never told apart, it is the batch by convention.
        known.sort(key=lambda axis: axis[1])
        return lengths[known[0]] if known else None


def _axes(batch: Any) -> Iterator[tuple[Axis, int]]:
    for position, leaf in enumerate(_leaves(batch, _MAX_DEPTH)):
        if position >= _MAX_LEAVES:
            return
        shape = getattr(leaf, "shape", None)
        if shape is None:  # a list of plain values: one sample each
            yield (position, 0), len(leaf)
        else:
            for axis, length in enumerate(tuple(shape)[:2]):
                yield (position, axis), int(length)


def _leaves(value: Any, depth: int) -> Iterator[Any]:
    """Tensors and lists of plain values inside `value`, in a fixed order."""
    if depth == 0 or isinstance(value, (str, bytes)):
        return
    if hasattr(value, "shape"):
        try:
            dimensions = len(value.shape)
        except TypeError:
            return
        if dimensions:
            yield value
        return
    if isinstance(value, Mapping):
        for one in value.values():
            yield from _leaves(one, depth - 1)
    elif isinstance(value, Sequence):
        nested = [one for one in value if _is_container(one)]
        if value and not nested:
            yield value
        for one in nested[:_MAX_LEAVES]:
            yield from _leaves(one, depth - 1)
    elif hasattr(value, "__dict__"):
        for one in vars(value).values():
            yield from _leaves(one, depth - 1)


def _is_container(value: Any) -> bool:
    return hasattr(value, "shape") or (
        isinstance(value, (Mapping, Sequence)) and not isinstance(value, (str, bytes))
    )
