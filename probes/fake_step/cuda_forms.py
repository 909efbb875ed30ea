"""Operations that take another form on a CUDA device than on the CPU that stands for it.

Steps on fake tensors run on the CPU's operations. Where a GPU's own keep other tensors for the
backward pass, what the script calls is replaced for the rest of the process: it only runs fake
steps from then on.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.nn import functional

from .cuda_autocast import use_cuda_autocast
from .cuda_kernels import use_cuda_kernels
from .cuda_recurrent import use_cuda_recurrent

CHOICE = "_default_to_fused_or_foreach"
"""How torch's optimizers choose between loops, for the parameters that they have."""


def use_cuda_forms(*, on_fakes: bool = False) -> None:
    """From now on operations and optimizers take the memory that they take on CUDA.

    Args:
        on_fakes: only fake steps follow. Without it the CPU can still compute: then attention and
            autocast stay those of a CPU.
    """
    functional.dropout = _dropout  # keeps a mask of bytes, where the CPU keeps one of floats
    if on_fakes:
        use_cuda_kernels()
        use_cuda_recurrent()
        use_cuda_autocast()
    else:
        functional.scaled_dot_product_attention = _attention_without_dropout(
            functional.scaled_dot_product_attention
        )
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.optim.") and hasattr(module, CHOICE):
            setattr(module, CHOICE, _foreach)


def _dropout(
    input: torch.Tensor,  # noqa: A002  torch's name
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> torch.Tensor:
    if not training or p == 0:
        return input
    out = torch.native_dropout(input, p, training)[0]
    return input.copy_(out) if inplace else out


def _attention_without_dropout(native: Any) -> Any:
    """With dropout the CPU falls back to the whole matrix of scores; CUDA does not."""

    def attention(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        given = list(args)
        if len(given) > 1:
            given[1] = 0.0
        kwargs.pop("dropout_p", None)
        return native(query, key, value, *given, **kwargs)

    return attention


def _foreach(params: Any, differentiable: bool, use_fused: bool = False) -> tuple[bool, bool]:
    """All parameters of a group at once, with temporaries for all: the default on CUDA."""
    del params, use_fused
    return False, not differentiable
