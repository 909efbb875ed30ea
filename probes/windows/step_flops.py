"""Floating point operations of one running step, by torch's own flop counter.

The counter sees what torch dispatches in the thread of the loop and in its backward pass. What
calls kernels past the dispatcher (compiled code, extensions) it does not see, and of operations
without a formula it knows nothing: then nothing is said, rather than too little.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections import Counter
from types import FrameType
from typing import Any

import torch
from torch.utils import flop_counter
from torch.utils.flop_counter import FlopCounterMode

from ...records import StepFlops
from .optimizer_hooks import Listener, listen

CPU_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
ACTIVATION_PRODUCTS = ("attention", "bmm")
"""Parts of the names of operations that multiply activations with each other."""
CONVOLUTION = "conv"
"""Part of the names of all convolutions."""
WITHOUT_FORMULA = frozenset(
    {
        "mkldnn_rnn_layer",
        "mkldnn_rnn_layer_backward",
        "_cudnn_rnn",
        "_cudnn_rnn_backward",
        "miopen_rnn",
        "miopen_rnn_backward",
        "_grouped_mm",
        "_scaled_grouped_mm",
        "_int_mm",
        "_weight_int8pack_mm",
        "_weight_int4pack_mm",
        "_sparse_mm",
        "_sparse_semi_structured_linear",
        "_transformer_encoder_layer_fwd",
        "_native_multi_head_attention",
        "_scaled_dot_product_fused_attention_overrideable",
        "_scaled_dot_product_attention_math_for_mps",
        "_trilinear",
        "_cdist_forward",
        "mkldnn_linear",
        "linear",
        "matmul",
    }
)
"""Operations of torch's that multiply matrices and have no formula; some are seen undecomposed."""
CHECKPOINTING = "checkpoint"
"""Parts of the names of files, torch's, DeepSpeed's and others', that make a forward pass again."""
BACKWARD = "_engine_run_backward"
"""The function of torch that starts the backward pass; its caller is the script."""
NO_OPERATION = "no operation that torch's flop counter knows ran in the thread of the training loop"
CAPTURED = "the script replays captured CUDA graphs, which run past torch's flop counter"
NO_COUNT_COMPILED = (
    "the script compiles its model, and compiled code runs past torch's flop counter"
)


class StepFlopCounter:
    """Counts from `start` to `finish`; neither ever raises for the script's own operations."""

    def __init__(self) -> None:
        self._mode: _PhaseCounter | None = None
        self._steps: Listener | None = None
        self._replay: Any = None

    def start(self) -> None:
        """The step begins."""
        mode = _PhaseCounter()
        self._mode = mode
        # What an optimizer multiplies (Muon) is no part of the model.
        self._steps = listen(
            lambda *_: mode.pause(paused=True), lambda *_: mode.pause(paused=False)
        )
        graphs: Any = torch.cuda.CUDAGraph
        replay = self._replay = graphs.replay

        def noted(graph: Any) -> Any:
            mode.problem = mode.problem or CAPTURED
            return replay(graph)

        graphs.replay = noted
        mode.__enter__()  # type: ignore[no-untyped-call]

    def forget(self) -> None:
        """Drops the count so far: it was the loader's work."""
        if self._mode is not None:
            self._mode.clear()

    def finish(self) -> StepFlops | str:
        """The step is over; why it was not counted where it could not be."""
        mode, self._mode = self._mode, None
        if mode is None:
            return NO_OPERATION
        self._let_go(mode)
        if mode.problem:
            return mode.problem
        if not mode.forward + mode.backward:
            return NO_OPERATION
        return StepFlops(
            forward=mode.forward,
            backward=mode.backward,
            recomputed=mode.recomputed,
            products=mode.products,
            convolutions=mode.convolutions,
            by_dtype=dict(mode.by_dtype),
            largest_tensor=mode.largest_tensor,
        )

    def abandon(self) -> None:
        """The step ends some other way."""
        mode, self._mode = self._mode, None
        if mode is not None:
            self._let_go(mode)

    def _let_go(self, mode: _PhaseCounter) -> None:
        if self._steps is not None:
            self._steps.remove()
        graphs: Any = torch.cuda.CUDAGraph
        graphs.replay = self._replay
        mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]


class _NoModules:
    """Stands for torch's tracker of modules, which hooks into all of them: sums need none."""

    parents = ("Global",)

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


class _PhaseCounter(FlopCounterMode):  # type: ignore[misc,unused-ignore]
    """torch's flop counter, the forward pass apart from the backward one."""

    def __init__(self) -> None:
        super().__init__(display=False, custom_mapping=own_formulas())
        self.mod_tracker: Any = _NoModules()
        self.problem = ""
        self._paused = False
        self.clear()

    def clear(self) -> None:
        self.forward = self.backward = self.recomputed = self.products = self.convolutions = 0
        self.by_dtype: Counter[str] = Counter()
        self.largest_tensor: tuple[int, ...] = ()
        self._most = 0

    def pause(self, *, paused: bool) -> None:
        self._paused = paused

    def _count_flops(self, func_packet: Any, out: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(out, torch.Tensor) and out.numel() > self._most:
            self._most, self.largest_tensor = out.numel(), tuple(out.shape)
        if not self._paused and not self.problem:
            try:
                self._note(func_packet, out, args, kwargs)
            except Exception as error:  # noqa: BLE001  a formula that fails must not end the script
                name = getattr(func_packet, "__name__", str(func_packet))
                self.problem = f"torch's flop counter fails at {name}: {type(error).__name__}"
        return out

    def _note(self, packet: Any, out: Any, args: Any, kwargs: Any) -> None:
        name = str(getattr(packet, "__name__", packet))
        if packet not in self.flop_registry:
            self._note_unknown(packet, name)
            return
        if any(type(arg).__name__ == "DTensor" for arg in args):
            self.problem = f"{name} multiplies tensors that are spread over devices"
            return
        flops = int(self.flop_registry[packet](*args, **kwargs, out_val=out))
        in_backward = torch._C._current_graph_task_id() != -1
        if in_backward and torch.is_grad_enabled() and _is_made_again():
            self.recomputed += flops
            return
        if in_backward:
            self.backward += flops
        else:
            self.forward += flops
        self.products += flops if any(part in name for part in ACTIVATION_PRODUCTS) else 0
        self.convolutions += flops if CONVOLUTION in name else 0
        self.by_dtype[_dtype_of(name, args)] += flops

    def _note_unknown(self, packet: Any, name: str) -> None:
        namespace = str(packet).partition(".")[0]
        if namespace == "aten":
            if name in WITHOUT_FORMULA:
                self.problem = f"torch's flop counter has no formula for {name}"
        elif namespace not in OWN_NAMESPACES:
            self.problem = f"torch's flop counter has no formula for {packet}"


OWN_NAMESPACES = frozenset({"prim", "prims", "profiler", "c10d", "_c10d_functional", "inductor"})
"""Namespaces of torch's without operations that multiply matrices."""


def _is_made_again() -> bool:
    """Whether checkpointing runs a part of the forward pass again.

    A gradient of gradients keeps gradients on in the backward pass too: the callers tell.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != BACKWARD:
        if CHECKPOINTING in frame.f_code.co_filename.rpartition(os.sep)[2]:
            return True
        frame = frame.f_back
    return False


def _dtype_of(name: str, args: Any) -> str:
    """The type that an operation multiplies."""
    tensor = next((arg for arg in args if isinstance(arg, torch.Tensor)), None)
    if tensor is None:
        return "unknown"
    if tensor.dtype == torch.float32 and tensor.device.type == "cuda" and rounds(name):
        return "tfloat32"
    return str(tensor.dtype).removeprefix("torch.")


def rounds(name: str) -> bool:
    """Whether a GPU may round float32 to tfloat32 in an operation."""
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if CONVOLUTION in name:
            return bool(torch.backends.cudnn.allow_tf32)
        return bool(torch.backends.cuda.matmul.allow_tf32)
    return False


def own_formulas() -> dict[Any, Any]:
    """Formulas that torch's counter lacks: attention on a CPU, which takes the shapes of others."""
    aten = torch.ops.aten
    formulas: dict[Any, Any] = {}
    for suffix, function in (
        ("", flop_counter.sdpa_flop_count),
        ("_backward", flop_counter.sdpa_backward_flop_count),
    ):
        packet = getattr(aten, CPU_ATTENTION + suffix, None)
        if packet is not None and packet not in flop_counter.flop_registry:
            formulas[packet] = _of_shapes(function, 4 if suffix else 3)
    return formulas


def _of_shapes(function: Any, num: int) -> Any:
    """A formula of the first shapes that an operation takes."""

    def formula(*args: Any, out_shape: Any = None, **_: Any) -> int:  # noqa: ARG001
        return int(function(*args[:num]))

    return formula
