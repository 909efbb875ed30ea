"""Whether every step trains on the same tensors: then one batch is all there is."""

from __future__ import annotations

import sys
from itertools import islice
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from .batch_structure import MAX_LEAVES, paths

_GRAPHS = ("torch_geometric", "dgl")
_DEPTH = 4


class RepeatedInputs:
    """Compares what the outermost modules are given in a step with what they got in the last one.

    The tensors are held meanwhile, so that memory that is used again is not taken for the same. A
    tensor that was written into since counts as another.
    """

    def __init__(self) -> None:
        self._hooks: list[Any] = []
        self._depth = self._told_at = 0
        self._now: list[tuple[torch.Tensor, int]] = []
        self._before: list[tuple[torch.Tensor, int]] | None = None
        self._is_same: bool | None = None

    def step_ended(self) -> None:
        """An optimizer made a step; the first call begins to look."""
        if not self._hooks:
            self._hooks = [
                register_module_forward_pre_hook(self._enter),
                register_module_forward_hook(self._leave, always_call=True),
            ]
            return
        if self._before is not None:
            same = bool(self._now) and _are_same(self._before, self._now)
            self._is_same = same and self._is_same is not False
        self._before, self._now = self._now, []

    def stop(self) -> None:
        """Takes the hooks away."""
        for hook in self._hooks:
            hook.remove()
        self._now, self._before = [], None

    def said(self) -> str:
        """What is repeated; empty where nothing is."""
        if not self._is_same or not self._before:
            return ""
        tensors = [tensor for tensor, _ in self._before if tensor.dim()]
        samples = next((len(tensor) for tensor in tensors if tensor.is_floating_point()), None)
        samples = len(tensors[0]) if samples is None and tensors else samples
        edges = next((tensor.shape[1] for tensor in tensors if _are_edges(tensor)), None)
        if edges is not None or any(name in sys.modules for name in _GRAPHS):
            size = (
                f" ({samples:,} nodes)"
                if edges is None
                else f" ({samples:,} nodes, {edges:,} edges)"
            )
            return f"every step trains on the same graph{size}, so that one batch is the graph"
        return (
            f"every step trains on the same {samples:,} samples, so that one batch is all of them"
        )

    # inside ----------------------------------------------------------------------------------

    def _enter(self, _module: Any, inputs: Any) -> None:
        self._depth += 1
        if self._told_at or not torch.is_grad_enabled():
            return
        for _, leaf in islice(paths(inputs, (), _DEPTH), MAX_LEAVES):
            if isinstance(leaf, torch.Tensor) and leaf.dim() and not leaf.is_inference():
                self._told_at = self._depth
                self._now.append((leaf, leaf._version))

    def _leave(self, _module: Any, _inputs: Any, _output: Any) -> None:
        if self._told_at == self._depth:
            self._told_at = 0
        self._depth -= 1


def _are_same(before: list[tuple[torch.Tensor, int]], now: list[tuple[torch.Tensor, int]]) -> bool:
    return len(before) == len(now) and all(
        one.shape == other.shape and version == later and _place(one) == _place(other)
        for (one, version), (other, later) in zip(before, now, strict=True)
    )


def _place(tensor: torch.Tensor) -> int:
    """Where it lies; of one without storage of its own, such as a sparse one, the object."""
    return tensor.data_ptr() if tensor.layout == torch.strided else id(tensor)


def _are_edges(tensor: torch.Tensor) -> bool:
    """Pairs of nodes, as PyTorch Geometric holds them."""
    return tensor.dtype == torch.int64 and tensor.dim() == 2 and tensor.shape[0] == 2
