"""Memory that an operation takes on CUDA only while it runs, beside what it returns.

Norms and softmaxes work on rows that lie side by side: they copy what lies otherwise, such as the
tokens of a convolution's output, which are never made contiguous again as residuals are added to
them. Read off torch's own CUDA code by the most that each operation asked its allocator for
(torch 2.14, `scripts/software_gpu`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from .cuda_reductions import reduction_buffer

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
