"""Batches with other samples in their place, of the kind that the loader makes."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from .batch_structure import Path

Change = Callable[[Any, int], Any]
"""What carries samples along an axis, to what takes its place."""
Empty = Callable[[torch.Tensor, list[int]], torch.Tensor]

NO_CARRIER = "no part of a batch is known to hold its samples one by one"
OWN_KIND = "a batch is an object that cannot be cut into samples"


class CannotCutError(Exception):
    """The batch is of a kind of which no part can be made; the reason is its text."""


def grown_to(num_samples: int, batch: Any, carriers: Mapping[Path, int], empty: Empty) -> Any:
    """A batch of so many samples, for a step whose numbers mean nothing.

    Whole numbers and lists are those of the batch, again and again: lengths and masks stay what
    they can be. Other tensors have no contents.

    Args:
        carriers: the parts of the batch that hold samples, and along which axis, as
            `BatchSizeReader` tells them.
        empty: makes such a tensor, like another one and of this shape.

    Raises:
        CannotCutError: nothing carries samples, or the batch is no tensor, mapping or sequence.
    """

    def grow(value: Any, axis: int) -> Any:
        if isinstance(value, torch.Tensor):
            shape = [*value.shape]
            length, shape[axis] = shape[axis], num_samples
            if value.is_floating_point() or value.is_complex():
                return empty(value, shape)
            return value.index_select(axis, torch.arange(num_samples) % length)
        if hasattr(value, "shape"):
            return value.take([at % value.shape[axis] for at in range(num_samples)], axis=axis)
        return type(value)(value[at % len(value)] for at in range(num_samples))

    return changed(batch, carriers, grow)


def changed(batch: Any, carriers: Mapping[Path, int], change: Change) -> Any:
    """A batch whose parts that carry samples are changed.

    Raises:
        CannotCutError: see `grown_to`.
    """
    if not carriers:
        raise CannotCutError(NO_CARRIER)
    return _part(batch, (), carriers, change)


def _part(value: Any, path: Path, carriers: Mapping[Path, int], change: Change) -> Any:
    axis = carriers.get(path)
    if axis is not None:
        return change(value, axis)
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping) or _is_dataclass(value):
        return _of_names(value, path, carriers, change)
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, PackedSequence)):
        listed = [
            _part(part, (*path, ("item", key)), carriers, change) for key, part in enumerate(value)
        ]
        kind: Any = type(value)
        return kind(*listed) if hasattr(kind, "_fields") else kind(listed)
    if isinstance(value, PackedSequence) or hasattr(value, "__dict__"):
        raise CannotCutError(OWN_KIND)
    return copy.deepcopy(value)


def _is_dataclass(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _of_names(value: Any, path: Path, carriers: Mapping[Path, int], change: Change) -> Any:
    """A mapping, or a dataclass, with other values."""
    kind = "item" if isinstance(value, Mapping) else "attribute"
    made = copy.copy(value)
    held: Any = made if isinstance(value, Mapping) else vars(made)
    for name, part in list(held.items()):
        held[name] = _part(part, (*path, (kind, name)), carriers, change)
    return made
