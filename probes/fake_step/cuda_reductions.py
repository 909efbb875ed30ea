"""The buffer that CUDA's reductions take while they run.

A sum over the leading dimensions, such as the gradient of a bias, is split over blocks of threads,
whose parts lie in a buffer until the last block adds them. How large it is follows from the shape
and the device (`setReduceConfig` and `ReduceConfig::global_memory_size` in
aten/src/ATen/native/cuda/Reduce.cuh), here of an A100. It may be larger than what is reduced.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import torch

NUM_SMS, SM_THREADS, WARP = 108, 2048, 32
"""Multiprocessors, threads of each, and threads of a warp of an A100. Devices with fewer
multiprocessors take less."""
MAX_THREADS: Final = 512
MIN_VALUES, MAX_VALUES = 16, 256
"""Values that one CUDA thread reduces, at least and at most."""
WIDEST: Final = 4
"""Outputs that a thread makes at once."""
REDUCTIONS: Final = frozenset({"sum", "mean", "amax", "amin"})
SMALLEST: Final = 512
"""Steps of all sizes have the same requests in the same order, so none is left out."""


def reduction_buffer(name: str, args: Sequence[Any]) -> int:
    """Bytes of the buffer; 0 for other operations and for reductions along memory.

    Args:
        name: of the operation, as in `torch.ops.aten`.
        args: its arguments: a tensor, and the dimensions that are reduced.
    """
    if name not in REDUCTIONS or len(args) < 2 or not isinstance(args[1], (list, tuple)):
        return 0
    tensor: torch.Tensor = args[0]
    reduced = {dim % tensor.dim() for dim in args[1]} if tensor.dim() else set()
    kept = [dim for dim in range(tensor.dim()) if dim not in reduced and tensor.size(dim) > 1]
    gone = [dim for dim in reduced if tensor.size(dim) > 1]
    if not kept or not gone:
        return 0
    fastest = min(kept, key=tensor.stride)
    if tensor.stride(fastest) > min(tensor.stride(dim) for dim in gone):
        return 0
    width = max(4, tensor.element_size())  # sums of narrower types are kept in fp32
    num_outputs = prod(tensor.size(dim) for dim in kept)
    num_inputs = prod(tensor.size(dim) for dim in gone)
    vector = _vector(tensor, fastest) if tensor.stride(fastest) == 1 else 1
    return max(SMALLEST, width * num_outputs * _parts(num_outputs, num_inputs, vector))


def _parts(num_outputs: int, num_inputs: int, vector: int) -> int:
    """How many parts each output has in the buffer; 0 without one."""
    most = MAX_THREADS // vector
    wide = min(_power(num_outputs // vector), most)
    high = min(_power(num_inputs), most)
    block_width = min(wide, WARP)
    block_height = min(high, most // block_width)
    block_width = min(wide, most // block_height)
    values = num_inputs
    if values < block_height * MIN_VALUES and values < MAX_VALUES:
        return 0
    values = -(-values // block_height)
    grid = -(-(num_outputs // vector) // block_width)
    target = NUM_SMS * (SM_THREADS // (block_width * block_height))
    if values < MAX_VALUES or grid > target:
        return 0
    blocks = min(-(-target // grid), -(-values // MIN_VALUES))
    blocks = max(blocks, -(-values // MAX_VALUES))
    return blocks * block_width * vector if blocks > 1 else 0


def _vector(tensor: torch.Tensor, fastest: int) -> int:
    """Outputs that lie side by side and are made at once."""
    vector = WIDEST
    others = [tensor.stride(dim) for dim in range(tensor.dim()) if tensor.size(dim) > 1]
    for number in (tensor.size(fastest), *(stride for stride in others if stride != 1)):
        while number % vector:
            vector //= 2
    return vector


def _power(number: int) -> int:
    """The largest power of two that is no larger."""
    return 1 << (max(number, 1).bit_length() - 1)
