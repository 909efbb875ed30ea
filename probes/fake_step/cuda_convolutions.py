"""What cuDNN's search for the fastest kernel of a convolution does to memory.

With `torch.backends.cudnn.benchmark` cuDNN tries all kernels of each convolution once, and torch
then empties its cache (`emptyCache` in aten/src/ATen/native/cudnn/Conv_v7.cpp). From then on the
fastest runs, whatever memory it needs meanwhile. For most convolutions this is little. Those whose
groups hold several channels are made anew, padded for tensor cores. How much that takes is nowhere
written: it is an assumption, by what published sizes show (`docs/estimate-against-gpus.md`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import torch

TIMES_INPUT: Final = {True: 4, False: 8}
"""Bytes that the search takes, in multiples of the input, an assumption: with channels last, and
without, where cuDNN turns the input round first."""
NARROW = (torch.float16, torch.bfloat16)
"""Types that tensor cores multiply in these kernels."""
FIRST: Final = {"convolution": 0, "convolution_backward": 1}
"""Where among the arguments the input stands; the weights follow."""
GROUPS: Final = {"convolution": 8, "convolution_backward": 9}
"""Where their number stands."""


def search_of(name: str, args: Sequence[Any]) -> tuple[Any, ...]:
    """Identifies a convolution whose kernels cuDNN tries, once for each; empty where it tries none.

    After that torch empties its cache of memory, which the search may have filled.
    """
    if name not in FIRST or not torch.backends.cudnn.benchmark:
        return ()
    given, weights = args[FIRST[name] : FIRST[name] + 2]
    settings = (str(each) for each in args[FIRST[name] + 3 :])
    return (name, given.shape, given.stride(), given.dtype, weights.shape, *settings)


def grouped_workspace(name: str, args: Sequence[Any]) -> int:
    """Bytes that are taken while it runs; 0 for other operations and where cuDNN does not try.

    Args:
        name: of the operation, as in `torch.ops.aten`.
        args: its arguments.
    """
    if name not in FIRST or not torch.backends.cudnn.benchmark:
        return 0
    given: torch.Tensor
    weights: torch.Tensor
    given, weights = args[FIRST[name] : FIRST[name] + 2]
    groups: int = args[GROUPS[name]]
    # One channel a group has kernels of its own.
    if groups == 1 or weights.size(1) == 1 or given.dtype not in NARROW:
        return 0
    is_last = suggested_layout(given) is not None
    num_bytes: int = TIMES_INPUT[is_last] * prod(given.shape) * given.element_size()
    return num_bytes


def suggested_layout(tensor: torch.Tensor) -> torch.memory_format | None:
    """The order in which its channels lie last; `None` for any other."""
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    if layout is None or tensor.is_contiguous():
        return None
    return layout if tensor.is_contiguous(memory_format=layout) else None
