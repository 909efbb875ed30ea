"""Memory that an operation takes on CUDA only while it runs, beside what it returns.

Norms and softmaxes work on rows that lie side by side: they copy what lies otherwise, such as the
tokens of a convolution's output, which are never made contiguous again as residuals are added to
them. Read off torch's own CUDA code by the most that each operation asked its allocator for
(torch 2.14, `scripts/software_gpu`).

Reductions take a buffer. A sum over the leading dimensions, such as the gradient of a bias, is
split over blocks of threads, whose parts lie in it until the last block adds them. How large it is
follows from the shape and the device (`setReduceConfig` and `ReduceConfig::global_memory_size` in
aten/src/ATen/native/cuda/Reduce.cuh), here of an A100. It may be larger than what is reduced.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import torch

COPIED_BEFORE: Final = {
    "native_layer_norm": (0,),
    "native_layer_norm_backward": (1,),
    "native_group_norm_backward": (0, 1),
    "embedding_dense_backward": (0,),
}
"""Arguments that an operation copies, where they are not contiguous, before it makes its output."""
COPIED_AFTER: Final = {
    "native_layer_norm_backward": (0,),
    "native_group_norm": (0,),
    "_softmax": (0,),
    "_softmax_backward_data": (0, 1),
    "_log_softmax": (0,),
    "_log_softmax_backward_data": (0, 1),
}
"""Those that it copies when it has its output."""
MULTIPLIED: Final = "_softmax_backward_data"
"""Multiplies the gradient with the output first, into a tensor of that size."""
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


def taken_before(name: str, args: Sequence[Any]) -> list[int]:
    """Bytes of tensors that live from before the output is made until the operation returns.

    Args:
        name: of the operation, as in `torch.ops.aten`.
        args: its arguments.
    """
    return _copies(args, COPIED_BEFORE.get(name, ()))


def taken_after(name: str, args: Sequence[Any]) -> list[int]:
    """Bytes of what lives beside the output until the operation returns; see `taken_before`."""
    buffer = reduction_buffer(name, args)
    product = [args[1].nbytes] if name == MULTIPLIED else []
    return [*([buffer] if buffer else []), *product, *_copies(args, COPIED_AFTER.get(name, ()))]


def _copies(args: Sequence[Any], places: Sequence[int]) -> list[int]:
    return [args[at].nbytes for at in places if not args[at].is_contiguous()]


def reduction_buffer(name: str, args: Sequence[Any]) -> int:
    """Bytes of the buffer of a reduction; 0 for other operations and for reductions along memory.

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
