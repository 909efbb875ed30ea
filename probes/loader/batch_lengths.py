"""Batches whose samples are sequences, made longer or shorter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch

from .batch_parts import CannotCutError, Empty, changed
from .batch_structure import Path

NO_BATCH_LENGTH = (
    "no part of a batch is known to have a length: there are no token ids of a sample each"
)


def lengthened(batch: Any, carriers: Mapping[Path, int], length: int, empty: Empty) -> Any:
    """Returns the samples with another length, for a step whose numbers mean nothing.

    The length is that of most parts of whole numbers. Every axis of that length changes, but for
    the one of the samples. Whole numbers come again and again, other tensors have no contents.

    Args:
        carriers: the parts of the batch that hold samples, and along which axis.
        empty: makes a tensor like another one, of a shape.

    Raises:
        CannotCutError: nothing in the batch has a length.
    """
    lengths: Counter[int] = Counter()

    def note(value: Any, axis: int) -> Any:
        if isinstance(value, torch.Tensor) and not value.is_floating_point():
            lengths.update(size for at, size in enumerate(value.shape) if at != axis and size > 1)
        return value

    changed(batch, carriers, note)
    if not lengths:
        raise CannotCutError(NO_BATCH_LENGTH)
    own, _ = lengths.most_common(1)[0]

    def change(value: Any, axis: int) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        axes = [at for at, size in enumerate(value.shape) if at != axis and size == own]
        if value.is_floating_point() or value.is_complex():
            shape = [length if at in axes else size for at, size in enumerate(value.shape)]
            return empty(value, shape) if axes else value
        for at in axes:
            value = value.index_select(at, torch.arange(length) % own)
        return value

    return changed(batch, carriers, change)
