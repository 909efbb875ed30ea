"""Batches with other samples in their place, of the kind that the loader makes."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from .batch_structure import BATCH_DEPTH, Path, paths

Change = Callable[[Any, int], Any]
"""Replaces a part of a batch, given the part and the axis along which it carries samples."""
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
        return _repeated(value, axis, num_samples)

    return changed(batch, carriers, grow)


def _repeated(value: Any, axis: int, num_samples: int) -> Any:
    """A list or an array of NumPy, again and again."""
    if hasattr(value, "shape"):
        return value.take([at % value.shape[axis] for at in range(num_samples)], axis=axis)
    return type(value)(value[at % len(value)] for at in range(num_samples))


def flat_carriers(batch: Any, other: Any, carriers: Mapping[Path, int]) -> dict[Path, int]:
    """Tensors that hold what all samples have, one after the other, beside parts that count them.

    So texts of a bag of words come, and nodes of graphs: along an axis that differs between two
    batches of as many samples. An axis as long as one of a part that counts samples is that of a
    sample, such as a mask of the padded length.

    Args:
        other: another batch.
        carriers: the parts that count samples.
    """
    shapes = {path: tuple(leaf.shape) for path, leaf in _tensors(other)}
    of_samples: set[tuple[int, int]] = set()
    beside: dict[Path, list[tuple[int, int]]] = {}
    for path, leaf in _tensors(batch):
        pairs = list(zip(leaf.shape, shapes.get(path, ()), strict=False))
        if _is_within(path, carriers):
            of_samples.update(pairs)
        else:
            beside[path] = pairs
    flat: dict[Path, int] = {}
    for path, pairs in beside.items():
        differing = (
            axis for axis, pair in enumerate(pairs) if pair[0] != pair[1] and pair not in of_samples
        )
        axis = next(differing, None)
        if axis is not None:
            flat[path] = axis
    return flat


def is_whole(batch: Any, carriers: Mapping[Path, int]) -> bool:
    """Whether each tensor of a batch that has an axis counts its samples."""
    return all(_is_within(path, carriers) or not leaf.dim() for path, leaf in _tensors(batch))


def _is_within(path: Path, carriers: Mapping[Path, int]) -> bool:
    return any(path[:depth] in carriers for depth in range(len(path) + 1))


def uneven_carriers(batch: Any, other: Any, num_samples: int) -> dict[Path, int]:
    """Parts of a batch that grow with it though no axis counts its samples, as graphs have them.

    Along the axis that differs between two batches of as many samples; where none does, along the
    first one that is a multiple of the samples.

    Args:
        other: another batch.
    """
    shapes = {path: tuple(leaf.shape) for path, leaf in _tensors(other)}
    carriers: dict[Path, int] = {}
    for path, leaf in _tensors(batch):
        shape = tuple(leaf.shape)
        pairs = zip(shape, shapes.get(path, shape), strict=False)
        differing = [axis for axis, (one, two) in enumerate(pairs) if one != two]
        whole = [axis for axis, length in enumerate(shape) if length and not length % num_samples]
        if differing or whole:
            carriers[path] = (differing or whole)[0]
    return carriers


def scaled_to(
    num_samples: int, own: int, batch: Any, carriers: Mapping[Path, int], empty: Empty
) -> Any:
    """Grows a batch as `grown_to` does, but by such carriers, each in proportion; returns a copy.

    Whole numbers that come again are counted on: they are places of nodes or graphs, unless there
    is one for each sample. Those that name the sample of each part name each of the new ones.

    Args:
        own: samples of the batch.

    Raises:
        CannotCutError: nothing carries samples.
    """

    def scale(value: Any, axis: int) -> Any:
        if not isinstance(value, torch.Tensor):
            return _repeated(value, axis, num_samples)
        length = value.shape[axis]
        wanted = max(1, round(length * num_samples / own))
        if value.is_floating_point() or value.is_complex():
            shape = [*value.shape]
            shape[axis] = wanted
            return empty(value, shape)
        again = torch.arange(wanted)
        if _names_samples(value, own):
            return (again * num_samples // wanted).to(value.dtype)
        taken = value.index_select(axis, again % length)
        if length == own or value.dtype is torch.bool:
            return taken
        step = (again // length) * (int(value.max()) + 1)
        return taken + step.view([-1 if at == axis else 1 for at in range(value.dim())])

    return changed(batch, carriers, scale, opened=True)


def _names_samples(value: torch.Tensor, own: int) -> bool:
    """Whether it says of each part, in order, of which of the samples that is."""
    return (
        value.dim() == 1
        and value.dtype is not torch.bool
        and len(value) >= own > 1
        and int(value[0]) == 0
        and int(value[-1]) == own - 1
        and bool((value.diff() >= 0).all())
    )


def tensors_in(batch: Any) -> list[torch.Tensor]:
    """Those inside a batch, also inside objects of libraries."""
    return [tensor for _, tensor in _tensors(batch)]


def _tensors(batch: Any) -> Iterator[tuple[Path, torch.Tensor]]:
    for path, leaf in paths(batch, (), BATCH_DEPTH):
        if isinstance(leaf, torch.Tensor):
            yield path, leaf


def changed(
    batch: Any, carriers: Mapping[Path, int], change: Change, *, opened: bool = False
) -> Any:
    """A batch whose parts that carry samples are changed.

    Args:
        opened: objects of libraries too are copied with other attributes.

    Raises:
        CannotCutError: see `grown_to`.
    """
    if not carriers:
        raise CannotCutError(NO_CARRIER)
    return _part(batch, (), carriers, change, opened=opened)


def _part(
    value: Any, path: Path, carriers: Mapping[Path, int], change: Change, *, opened: bool
) -> Any:
    axis = carriers.get(path)
    if axis is not None:
        return change(value, axis)
    if isinstance(value, torch.Tensor):
        if value.is_nested:
            raise CannotCutError(OWN_KIND)
        return value.detach().clone()
    if isinstance(value, Mapping) or _is_dataclass(value):
        return _of_names(value, path, carriers, change, opened=opened)
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, PackedSequence)):
        listed = [
            _part(part, (*path, ("item", key)), carriers, change, opened=opened)
            for key, part in enumerate(value)
        ]
        kind: Any = type(value)
        return kind(*listed) if hasattr(kind, "_fields") else kind(listed)
    if opened and _is_plain_object(value):
        return _of_names(value, path, carriers, change, opened=opened)
    if isinstance(value, PackedSequence) or hasattr(value, "__dict__"):
        raise CannotCutError(OWN_KIND)
    return copy.deepcopy(value)


def _is_dataclass(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _is_plain_object(value: Any) -> bool:
    return hasattr(value, "__dict__") and not (isinstance(value, type) or callable(value))


def _of_names(
    value: Any, path: Path, carriers: Mapping[Path, int], change: Change, *, opened: bool
) -> Any:
    """A mapping, or a dataclass, with other values."""
    kind = "item" if isinstance(value, Mapping) else "attribute"
    made = copy.copy(value)
    held: Any = made if isinstance(value, Mapping) else vars(made)
    for name, part in list(held.items()):
        held[name] = _part(part, (*path, (kind, name)), carriers, change, opened=opened)
    return made
