"""What a step trains on: the tensors that enter its outermost modules, and its loss."""

from __future__ import annotations

import time
from collections import deque
from itertools import islice
from math import prod
from typing import Any

import torch

from ...records import Entered
from .batch_structure import MAX_LEAVES, paths
from .compiled_modules import ModuleHooks

AS_ASKED = "asked"
"""The proof of a size that nothing shows; see records.Trial."""
MAX_SHAPES = 16
"""Tensors of a step whose shapes are kept."""
MAX_NODES = 64
"""Nodes of the autograd graph that are looked at behind a loss."""
INPUT_DEPTH = 4
"""Levels of lists, mappings and objects that are searched for tensors in a module's inputs; PyTorch
Geometric's graphs need them."""


class ModelInputs:
    """Looks at what a step trains on, from its making until it is stopped.

    Torch shows its hooks no arguments that are given by name: where a module is given nothing else,
    the modules inside it are looked at.

    Attributes:
        evaluated_s: `time.monotonic()` when a module last evaluated: without gradients, and not in
            the mode of training.
    """

    def __init__(self) -> None:
        self.evaluated_s = 0.0
        self._is_over = False
        self.forget()
        self._hooks = ModuleHooks(self._look, self._left)
        self._native_backward = torch.autograd.backward
        self._own_backward = self._backward  # one object, to be known again
        torch.autograd.backward = self._own_backward  # Tensor.backward() calls this name

    @property
    def lead(self) -> int | None:
        """The length of the first tensor, where one was seen since the last step."""
        return self._inputs[0][0] if self._inputs else None

    @property
    def entered(self) -> Entered | None:
        """Shapes that the step trained on so far; `None` where nothing was seen."""
        if not (self._inputs or self._loss):
            return None
        return Entered(
            inputs=tuple(self._inputs),
            loss=tuple(self._loss),
            num_inputs=self._num_inputs,
            num_elements=self._num_elements,
        )

    def forget(self) -> None:
        """A step begins."""
        self._inputs: list[tuple[int, ...]] = []
        self._loss: list[tuple[int, ...]] = []
        self._num_inputs = self._num_elements = 0

    def stop(self) -> None:
        """Takes the hooks away; timed steps run without them."""
        self._is_over = True
        self._hooks.remove()
        if torch.autograd.backward is self._own_backward:
            torch.autograd.backward = self._native_backward

    # inside ----------------------------------------------------------------------------------

    def _look(self, _module: Any, inputs: Any) -> bool:
        if not torch.is_grad_enabled():
            return False
        before = self._num_inputs
        for _, leaf in islice(paths(inputs, (), INPUT_DEPTH), MAX_LEAVES):
            if isinstance(leaf, torch.Tensor) and leaf.dim():
                self._add(tuple(leaf.shape))
        return self._num_inputs > before

    def _add(self, shape: tuple[int, ...]) -> None:
        self._num_inputs += 1
        self._num_elements += prod(shape)
        if len(self._inputs) < MAX_SHAPES:
            self._inputs.append(shape)

    def _left(self, module: torch.nn.Module) -> None:
        if not (module.training or torch.is_grad_enabled()):
            self.evaluated_s = time.monotonic()

    def _backward(self, *args: Any, **kwargs: Any) -> None:
        if not self._is_over:
            losses = args[0] if args else kwargs.get("tensors")
            for loss in (losses,) if isinstance(losses, torch.Tensor) else losses or ():
                self._look_behind(loss)
        self._native_backward(*args, **kwargs)

    def _look_behind(self, loss: torch.Tensor) -> None:
        """The shapes of what a loss was made of: every node knows those of its results."""
        queue, seen = deque([loss.grad_fn]), set[Any]()
        while queue and len(seen) < MAX_NODES and len(self._loss) < MAX_SHAPES:
            node = queue.popleft()
            if node is None or node in seen:
                continue
            seen.add(node)
            results = getattr(node, "_input_metadata", ())
            shapes = (tuple(each.shape) for each in results if not each.is_nested_tensor)
            self._loss += [shape for shape in shapes if shape]
            queue.extend(following for following, _ in node.next_functions)
