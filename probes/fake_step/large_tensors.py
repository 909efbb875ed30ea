"""The largest tensors that operations of a step work on, by what they do: kernels have limits.

Which limit a size meets is decided from these shapes (`features/estimate/fit/size_limits.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from ...records import LargeTensor, TensorUse

_USES: dict[TensorUse, tuple[str, ...]] = {
    "attention": ("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"),
    "convolution": ("convolution", "_convolution"),
    "interpolation": ("upsample_", "_upsample_", "grid_sampler_"),
    "Fourier transform": ("_fft_",),
    "pooling": ("max_pool", "avg_pool", "_adaptive_avg_pool", "adaptive_max_pool"),
    "loss": ("_log_softmax", "nll_loss", "_ctc_loss", "binary_cross_entropy"),
}


class LargeTensors:
    """Remembers, for each use, the largest tensor of the step so far.

    Args:
        line: of the user's code that runs now; asked at a new largest one alone.
    """

    def __init__(self, line: Callable[[], str]) -> None:
        self._line = line
        self._largest: dict[TensorUse, tuple[int, LargeTensor]] = {}

    def clear(self) -> None:
        """Another step begins."""
        self._largest.clear()

    @property
    def all(self) -> tuple[LargeTensor, ...]:
        """One of each use."""
        return tuple(tensor for _, tensor in self._largest.values())

    def note(self, name: str, given: list[torch.Tensor], out: Any) -> None:
        """An operation ran on some tensors."""
        use = _use_of(name)
        if use == "attention":  # its grid goes by the samples and heads of the query
            self._take(use, given[0], given[0].shape[0])
            return
        made = out if isinstance(out, (list, tuple)) else (out,)
        for tensor in (*given, *made) if use is not None else made:
            if isinstance(tensor, torch.Tensor):
                self._take(use or "other", tensor, tensor.numel())

    def _take(self, use: TensorUse, tensor: torch.Tensor, number: int) -> None:
        known = self._largest.get(use)
        if known is None or number > known[0]:
            line = self._line()
            taken = LargeTensor(use=use, shape=tuple(map(int, tensor.shape)), line=line)
            self._largest[use] = (number, taken)


@cache
def _use_of(name: str) -> TensorUse | None:
    """The use that an operation makes of a tensor; `None` for all other operations."""
    return next((use for use, starts in _USES.items() if name.startswith(starts)), None)
