"""Batches cut into parts: the same samples again, as they came from the loader."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from .batch_structure import Path

NO_CARRIER = "no part of a batch is known to hold its samples one by one"
OWN_KIND = "a batch is an object that cannot be cut into samples"


class CannotCutError(Exception):
    """The batch is of a kind of which no part can be made; the reason is its text."""


def part_of(batch: Any, carriers: Mapping[Path, int], start: int, stop: int) -> Any:
    """A copy of the samples from `start` up to `stop`; what belongs to no sample is copied whole.

    Args:
        carriers: the parts of the batch to cut, and along which axis, as `BatchSizeReader` tells
            them.

    Raises:
        CannotCutError: nothing carries samples, or the batch is no tensor, mapping or sequence.
    """
    if not carriers:
        raise CannotCutError(NO_CARRIER)
    return _part(batch, (), carriers, slice(start, stop))


def _part(value: Any, path: Path, carriers: Mapping[Path, int], wanted: slice) -> Any:
    axis = carriers.get(path)
    if isinstance(value, torch.Tensor):
        whole = (slice(None),)
        return (value if axis is None else value[whole * axis + (wanted,)]).detach().clone()
    if axis is not None:  # a list of samples, or an array
        where = (slice(None),) * axis + (wanted,) if hasattr(value, "shape") else wanted
        return copy.deepcopy(value[where])
    if isinstance(value, Mapping) or _is_dataclass(value):
        return _of_names(value, path, carriers, wanted)
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, PackedSequence)):
        listed = [
            _part(part, (*path, ("item", key)), carriers, wanted) for key, part in enumerate(value)
        ]
        kind: Any = type(value)
        return kind(*listed) if hasattr(kind, "_fields") else kind(listed)
    if isinstance(value, PackedSequence) or hasattr(value, "__dict__"):
        raise CannotCutError(OWN_KIND)
    return copy.deepcopy(value)


def _is_dataclass(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _of_names(value: Any, path: Path, carriers: Mapping[Path, int], wanted: slice) -> Any:
    """A mapping, or a dataclass, with other values."""
    kind = "item" if isinstance(value, Mapping) else "attribute"
    made = copy.copy(value)
    held: Any = made if isinstance(value, Mapping) else vars(made)
    for name, part in list(held.items()):
        held[name] = _part(part, (*path, (kind, name)), carriers, wanted)
    return made
