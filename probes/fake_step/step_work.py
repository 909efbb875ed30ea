"""The operations of a step on fake tensors: what each multiplies, reads and writes.

Also the largest tensors that they work on, by what they do: kernels have limits. Which limit a size
meets is decided from these shapes (`features/estimate/fit/size_limits.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry, shape_wrapper

from ...records import LargeTensor, OpWork, TensorUse
from ..windows.step_flops import WITHOUT_FORMULA, own_formulas, rounds
from .known_outputs import tensors_of
from .model_tree import parts_of

MOVES_NOTHING = frozenset(
    {"_unsafe_view", "detach", "alias", "lift_fresh", "empty", "empty_like", "new_empty", "resize_"}
    | {"empty_strided", "new_empty_strided", "_local_scalar_dense", "record_stream", "set_"}
)
READS_A_PART = frozenset(
    {"embedding", "index", "index_select", "gather", "slice_scatter", "select_scatter"}
    | {"embedding_dense_backward", "index_put_", "scatter_", "scatter_add_", "nll_loss_forward"}
    | {"nll_loss_backward", "fill_", "zero_", "copy_", "zeros", "ones", "full", "zeros_like"}
    | {"ones_like", "full_like", "new_zeros", "new_ones", "new_full", "arange"}
)
"""Operations that need not read the whole of their first tensor, or none."""
WRITES_A_PART = frozenset({"index_put_", "scatter_", "scatter_add_"})
_USES: dict[TensorUse, tuple[str, ...]] = {
    "attention": ("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"),
    "convolution": ("convolution", "_convolution"),
    "interpolation": ("upsample_", "_upsample_", "grid_sampler_"),
    "Fourier transform": ("_fft_",),
    "pooling": ("max_pool", "avg_pool", "_adaptive_avg_pool", "adaptive_max_pool"),
    "loss": ("_log_softmax", "nll_loss", "_ctc_loss", "binary_cross_entropy"),
}


class StepWork:
    """Collects the work of a step, in order.

    Attributes:
        operations: so far.
        problem: why they do not tell the whole; empty if they do.
    """

    def __init__(self) -> None:
        self.operations: list[OpWork] = []
        self.problem = ""
        wrapped: Any = shape_wrapper
        own = {packet: wrapped(formula) for packet, formula in own_formulas().items()}
        self._formulas = {**flop_registry, **own}

    def clear(self) -> None:
        """Another step begins."""
        self.operations.clear()
        self.problem = ""

    def note(self, func: Any, name: str, args: Any, kwargs: Any, out: Any) -> None:
        """An operation ran and returned `out`."""
        if func.is_view or name in MOVES_NOTHING:
            return
        if name in WITHOUT_FORMULA:
            self.problem = f"torch's flop counter has no formula for {name}"
            return
        given = tensors_of((*args, *kwargs.values()))
        formula = self._formulas.get(func.overloadpacket)
        flops = 0
        if formula is not None:
            try:
                flops = int(formula(*args, **kwargs, out_val=out))
            except Exception as error:  # noqa: BLE001  a formula must not end the estimate
                self.problem = f"torch's flop counter fails at {name}: {type(error).__name__}"
                return
        moved = _moved(name, given, tensors_of((out,)))
        if flops or moved:
            self.operations.append(OpWork(_type_of(name, given) if flops else "", flops, moved))


def _moved(name: str, given: list[torch.Tensor], made: list[torch.Tensor]) -> int:
    """Bytes that it reads and writes at the least."""
    read = given[1:] if name in READS_A_PART else given
    written = () if name in WRITES_A_PART else made
    return sum(_bytes_of(tensor) for tensor in (*read, *written))


def _bytes_of(tensor: torch.Tensor) -> int:
    """An expanded tensor takes no more than its storage has."""
    return sum(
        int(min(part.numel() * part.element_size(), part.untyped_storage().nbytes()))
        for part in parts_of(tensor)
    )


def _type_of(name: str, given: list[torch.Tensor]) -> str:
    """The type that is multiplied, with what a GPU may round it to."""
    dtype = given[0].dtype
    if dtype == torch.float32 and rounds(name):
        return "tfloat32"
    return str(dtype).removeprefix("torch.")


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
