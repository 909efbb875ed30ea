"""Changes to a step: in force from the moment at which the loop is known, and its model with it."""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import torch
from torch import nn
from torch.optim import Optimizer

from ....probes.fake_step.checkpointed_blocks import CheckpointedBlocks
from ....probes.source.call_site import is_users, shown_path
from ..settings import Kept, Settings
from .constructions import all_cores

MOST_BREAKS = 8
"""Graph breaks that are told."""
CLIPPING = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "get_total_norm")
"""Functions of torch.nn.utils that read gradients before the optimizer does."""


class InForce:
    """The changes of one process.

    Args:
        optimizers: those that the script made.
    """

    def __init__(self, settings: Settings, optimizers: Sequence[weakref.ref[Optimizer]]) -> None:
        self._settings = settings
        self._optimizers = optimizers
        self._autocast: Autocast | None = None
        self._scaler: Scaler | None = None
        self.cores_at_start = len(all_cores())
        self._cores = all_cores()

    def install(self) -> None:
        """Before the script starts."""
        if self._settings.autocast == "float16":
            self._scaler = Scaler(self._optimizers)
            self._scaler.install()
        if self._settings.autocast:
            self._autocast = Autocast()
            self._autocast.install()

    def begin(
        self, roots: Sequence[nn.Module], parameters: Sequence[torch.Tensor], device: torch.device
    ) -> None:
        """Between two steps, in the thread of the script.

        Raises:
            ValueError: there is nothing to change.
        """
        settings = self._settings
        if (settings.channels_last or settings.compile) and not roots:
            msg = "the loop calls no module that trains, which could be changed"
            raise ValueError(msg)
        if settings.widen:
            os.sched_setaffinity(0, self._cores)
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        if settings.tf32:
            torch.set_float32_matmul_precision("high")
            torch.backends.cudnn.allow_tf32 = True
        if settings.benchmark:
            torch.backends.cudnn.benchmark = True
        if settings.channels_last:
            for root in roots:
                take_channels_last(root)
        if settings.checkpoint:
            blocks = CheckpointedBlocks(parameters)
            if not blocks.members:
                msg = "the model has no repeated blocks that could be checkpointed"
                raise ValueError(msg)
            blocks.on = True
        if settings.compile:
            for root in roots:
                root.compile(mode=settings.compile)
        if self._scaler is not None:
            self._scaler.begin(device)
        if self._autocast is not None:
            self._autocast.begin(device.type, getattr(torch, settings.autocast))

    def with_facts(self, kept: Kept) -> Kept:
        """What was kept, with what the scaler and the compiler did."""
        scaler = self._scaler
        if scaler is not None:
            kept = msgspec.structs.replace(
                kept, num_skipped=scaler.num_skipped(), num_scaled=scaler.num_steps
            )
        if self._settings.compile:
            utils: Any = sys.modules.get("torch._dynamo.utils")
            frames = 0 if utils is None else int(utils.counters["frames"]["ok"])
            kept = msgspec.structs.replace(kept, breaks=graph_breaks(), compiled=frames)
        return kept


class Autocast:
    """Autocast over all of a step but its backward passes and its updates.

    Leaving it empties its cache of weights in the lower precision, so that each forward pass has
    those of the update before.
    """

    def __init__(self) -> None:
        self._make: Callable[[], Any] | None = None
        self._on: Any = None

    def install(self) -> None:
        """It stands aside for each backward pass, and for the update that follows it."""
        pid = os.getpid()
        autograd: Any = torch.autograd
        native = autograd._engine_run_backward

        @functools.wraps(native)
        def run_backward(*args: Any, **kwargs: Any) -> Any:
            outermost = torch._C._current_graph_task_id() == -1
            if self._on is None or not outermost or os.getpid() != pid:
                return native(*args, **kwargs)
            self._leave()
            try:
                return native(*args, **kwargs)
            finally:
                self._enter()

        autograd._engine_run_backward = run_backward

    def begin(self, kind: str, dtype: torch.dtype) -> None:
        """From here on."""
        self._make = lambda: torch.autocast(kind, dtype=dtype)
        self._enter()

    def _enter(self) -> None:
        assert self._make is not None
        self._on = self._make()
        self._on.__enter__()

    def _leave(self) -> None:
        self._on.__exit__(None, None, None)
        self._on = None


class Scaler:
    """torch's scaler of the loss, put between the script's backward pass and its optimizers.

    Args:
        optimizers: those that the script made.
    """

    def __init__(self, optimizers: Sequence[weakref.ref[Optimizer]]) -> None:
        self._refs = optimizers
        self._scaler: Any = None
        self._unscaled: set[int] = set()
        self.num_steps = 0
        self._skipped = 0

    def install(self) -> None:
        """Losses are scaled on their way into the backward pass; who clips reads true gradients."""
        pid = os.getpid()
        autograd: Any = torch.autograd
        native = autograd._engine_run_backward

        @functools.wraps(native)
        def run_backward(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            outermost = torch._C._current_graph_task_id() == -1
            accumulates = kwargs.get("accumulate_grad", False)
            if self._scaler is not None and outermost and accumulates and os.getpid() == pid:
                outputs = tuple(self._scaler.scale(output) for output in outputs)
            return native(outputs, *args, **kwargs)

        autograd._engine_run_backward = run_backward
        for holder in (torch.nn.utils, torch.nn.utils.clip_grad):
            for name in CLIPPING:
                if hasattr(holder, name):
                    setattr(holder, name, self._clipping(getattr(holder, name)))

    def begin(self, device: torch.device) -> None:
        """From here on."""
        self._scaler = torch.amp.GradScaler(device.type)
        for optimizer in self._alive():
            self._take(optimizer)

    def num_skipped(self) -> int:
        """Steps that it left out, since a gradient was infinite."""
        return self._skipped

    # inside ----------------------------------------------------------------------------------

    def _alive(self) -> list[Optimizer]:
        return [there for ref in self._refs if (there := ref()) is not None]

    def _clipping(self, native: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(native)
        def clip(*args: Any, **kwargs: Any) -> Any:
            if self._scaler is not None:
                for optimizer in self._alive():
                    self._unscale(optimizer)
            return native(*args, **kwargs)

        return clip

    def _unscale(self, optimizer: Optimizer) -> None:
        has = any(each.grad is not None for group in optimizer.param_groups
                  for each in group["params"])  # fmt: skip
        if has and id(optimizer) not in self._unscaled:
            self._scaler.unscale_(optimizer)
            self._unscaled.add(id(optimizer))

    def _take(self, optimizer: Any) -> None:
        """Its `step` goes through the scaler."""
        native = optimizer.step

        def step(*args: Any, **kwargs: Any) -> Any:
            if not any(each.grad is not None for group in optimizer.param_groups
                       for each in group["params"]):  # fmt: skip
                return native(*args, **kwargs)
            before = self._scaler.get_scale()
            optimizer.step = native  # else it would call itself
            try:
                result = self._scaler.step(optimizer, *args, **kwargs)
            finally:
                optimizer.step = step
            self._scaler.update()
            self._unscaled.discard(id(optimizer))
            self.num_steps += 1
            self._skipped += self._scaler.get_scale() < before
            return result

        optimizer.step = step


def take_channels_last(root: nn.Module) -> None:
    """The layout of its parameters, and of the images that it is called with."""
    # Not by `to`: a class may have one of its own, and that of torch refuses weights of 3-D
    # convolutions.
    for tensor in (*root.parameters(), *root.buffers()):
        tensor.data = laid_out(tensor.data)
        if tensor.grad is not None:
            tensor.grad = laid_out(tensor.grad)

    def images(_module: nn.Module, args: Any, kwargs: Any) -> Any:
        return tuple(map(laid_out, args)), {key: laid_out(each) for key, each in kwargs.items()}

    root.register_forward_pre_hook(images, with_kwargs=True)


def laid_out(thing: Any) -> Any:
    """An image in the layout channels_last; anything else as it is."""
    if isinstance(thing, torch.Tensor) and thing.dim() == 4 and thing.is_floating_point():
        return thing.contiguous(memory_format=torch.channels_last)
    return thing


def graph_breaks() -> tuple[str, ...]:
    """Where torch.compile could not go on: the user's line and the reason, each once."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    found: dict[str, None] = {}
    for each in getattr(utils, "graph_break_reasons", ()):
        mine = [frame for frame in getattr(each, "user_stack", ()) if is_users(frame.filename)]
        first = str(getattr(each, "reason", each)).strip().splitlines() or [""]
        where = f"{shown_path(mine[-1].filename)}:{mine[-1].lineno}: " if mine else ""
        found[f"{where}{first[0]}"] = None
    return tuple(found)[:MOST_BREAKS]
