"""Sizes that no kernel takes, though there is memory: 32-bit indices, grids of 65,535 blocks."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import msgspec

from ...records import Trial

MOST_ELEMENTS = 2**31
"""Elements that a 32-bit index reaches; kernels that ask beforehand (INT_MAX) take one less."""
UNSIGNED_ELEMENTS = 2**32
"""Elements that an unsigned 32-bit index reaches: beyond, it begins anew at 0."""
MOST_BLOCKS = 65_535
"""Blocks along the second and third axis of a grid, of CUDA and of HIP."""
_INDEX = (
    # aten/src/ATen/native: checks of canUse32BitIndexMath and of int32 strides
    "too large for 32-bit indexing",
    "canuse32bitindexmath",
    "integer out of range",
    "int_max",
    "2147483647",
    # cuDNN, of tensors beyond its 32-bit indices: pytorch/pytorch issues 3038, 4107
    "cudnn_status_not_supported",
)
_ADDRESS = ("illegal memory access", "memory access fault by gpu", "misaligned address")
"""A bug of any kind, unless a tensor is there that such an index does not reach."""
_GRID = (
    "invalid configuration argument",
    "hiperrorinvalidconfiguration",
    "65535",
    "65,535",
)
_ARGUMENT = ("triton error [cuda]: invalid argument", "cuda error: invalid argument")
"""Triton's launch of too large a grid, and of much else."""


class KernelLimit(msgspec.Struct, frozen=True):
    """A limit of a kernel.

    Attributes:
        why: the number that is too large, where the shapes tell it; else empty.
        largest: the largest size within, by these shapes.
    """

    why: str = ""
    largest: int | None = None


def kernel_limit(
    detail: str, batch_size: int | None, shape: Sequence[int] = (), *, smaller_ran: bool = False
) -> KernelLimit | None:
    """The limit that a failure is about; `None` where that cannot be told.

    Args:
        detail: the words of the failure.
        batch_size: `None` where it is not known; then no size is told.
        shape: of the largest tensor that was at hand.
        smaller_ran: a smaller size ran; without that a kernel may refuse anything.

    >>> kernel_limit("an illegal memory access", 33, (33, 2048, 32768)).largest
    32
    >>> kernel_limit("an illegal memory access", 33, (33, 2048, 16)) is None
    True
    """
    words = detail.lower()
    about_index = any(part in words for part in _INDEX)
    about_grid = any(part in words for part in _GRID)
    if about_index or any(part in words for part in _ADDRESS):
        limit = beyond_index(shape, batch_size, MOST_ELEMENTS - about_index)
        if limit is not None:
            return limit
    first = shape[0] if shape and not shape[0] % (batch_size or 1) else batch_size or 0
    if first > MOST_BLOCKS and (about_grid or any(part in words for part in _ARGUMENT)):
        why = f"{first:,} along the first axis, a grid has {MOST_BLOCKS:,} blocks along its second"
        return KernelLimit(f"{why} and third", _within(MOST_BLOCKS, first, batch_size))
    if smaller_ran and (about_index or about_grid or _ARGUMENT[0] in words):
        return KernelLimit()
    return None


def beyond_index(
    shape: Sequence[int], batch_size: int | None, most: int = MOST_ELEMENTS
) -> KernelLimit | None:
    """The limit that a size lies beyond, by its largest tensor; `None` within it.

    Args:
        most: elements that an index reaches.

    >>> beyond_index((43, 2047, 50000), 43).largest
    20
    >>> beyond_index((20, 2047, 50000), 20) is None
    True
    """
    num_elements = prod(shape) if shape else 0
    if num_elements <= most:
        return None
    axes = " x ".join(map(str, shape))
    grows = batch_size is not None and _grows(shape, batch_size)
    return KernelLimit(
        f"a tensor of {axes} has {num_elements:,} elements, and an index of 32 bits reaches "
        f"{most:,}",
        _within(most, num_elements, batch_size, grows=grows),
    )


def kernel_limit_of(trial: Trial, *, smaller_ran: bool) -> KernelLimit | None:
    """The limit that a trial met; see `kernel_limit`."""
    if trial.ran or trial.outcome == "out_of_memory":
        return None
    return kernel_limit(
        trial.detail, trial.batch_size, trial.largest_tensor, smaller_ran=smaller_ran
    )


def _within(most: int, number: int, batch_size: int | None, *, grows: bool = True) -> int | None:
    """The largest size by which a number that grows with it stays within the limit."""
    return most * batch_size // number if batch_size is not None and grows else None


def _grows(shape: Sequence[int], batch_size: int) -> bool:
    """Whether one axis alone goes with the batch, so that the tensor is in proportion to it."""
    with_batch = shape[0] if not shape[0] % batch_size else batch_size
    return shape.count(with_batch) == 1
