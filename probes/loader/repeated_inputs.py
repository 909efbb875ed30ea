"""Whether nobody chooses the batch: steps train on the same tensors, or on a whole episode."""

from __future__ import annotations

import sys
from itertools import islice
from typing import Any

import torch

from .batch_structure import MAX_LEAVES, paths
from .compiled_modules import ModuleHooks

_GRAPHS = ("torch_geometric", "dgl")
_DEPTH = 4
MAX_EPISODES = 8
"""After so many steps with the same number of samples, one by one, that number is a size."""


class RepeatedInputs:
    """Compares what the outermost modules that train get in a step with what they got in the last.

    What a loss is given, and other modules without parameters that train, is made anew each time.
    The tensors are held meanwhile, so that memory that is used again is not taken for the same. A
    tensor that was written into since counts as another, but for one that is trained itself, such
    as the picture of a style transfer; one that is made anew in each step with the same values,
    such as a first hidden state of zeros, does not.

    Samples that enter one by one, in another number each time, until a step is made of all of them
    are an episode, or a sequence: their number is not chosen but found.
    """

    def __init__(self) -> None:
        self._hooks: ModuleHooks | None = None
        self._now: list[tuple[torch.Tensor, int]] = []
        self._before: list[tuple[torch.Tensor, int]] | None = None
        self._is_same: bool | None = None
        self._passes = self._singles = 0
        self._alone: list[int] = []

    @property
    def undecided(self) -> bool:
        """Whether more steps may tell: samples entered one by one, in the same number so far."""
        return 0 < len(self._alone) < MAX_EPISODES and min(self._alone) == max(self._alone) > 1

    def step_ended(self) -> None:
        """An optimizer made a step; the first call begins to look."""
        if self._hooks is None:
            self._hooks = ModuleHooks(self._look)
            return
        if self._before is not None:
            same = bool(self._now) and _are_same(self._before, self._now)
            self._is_same = same and self._is_same is not False
        if self._passes:
            self._alone.append(self._passes if self._singles == self._passes else 0)
        self._passes = self._singles = 0
        self._before, self._now = self._now, []

    def stop(self) -> None:
        """Takes the hooks away."""
        if self._hooks is not None:
            self._hooks.remove()
        self._now, self._before = [], None

    def said(self) -> str:
        """Why one batch is all there is; empty where nothing shows it."""
        clause, whole = self._repeated()
        return f"{clause}, so that one batch is {whole}" if clause else self._episodes()

    def clause(self) -> str:
        """What every step trains on; empty where that differs, or nothing shows it."""
        return self._repeated()[0]

    # inside ----------------------------------------------------------------------------------

    def _repeated(self) -> tuple[str, str]:
        """What every step trains on, and what one batch is for that."""
        if not self._is_same or not self._before:
            return "", ""
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
            return f"every step trains on the same graph{size}", "the graph"
        if samples == 1:
            return "every step trains on the same sample", "all there is"
        return f"every step trains on the same {samples:,} samples", "all of them"

    def _episodes(self) -> str:
        fewest, most = min(self._alone, default=0), max(self._alone, default=0)
        if not 0 < fewest < most:
            return ""
        return (
            "each step trains on a whole episode or sequence, item by item "
            f"({fewest:,} to {most:,} forward passes of one sample for a step), so that its length "
            "is the batch"
        )

    def _look(self, module: torch.nn.Module, inputs: Any) -> bool:
        if not torch.is_grad_enabled():
            return False
        leaves = [leaf for _, leaf in islice(paths(inputs, (), _DEPTH), MAX_LEAVES)]
        if not _trains(module) and not any(map(_is_trained, leaves)):
            return False
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim()]
        known = [leaf for leaf in tensors if not leaf.is_inference()]
        if known:
            self._passes += 1
            self._singles += known[0].dim() == 1 or len(known[0]) == 1
        self._now += [(leaf, _version(leaf)) for leaf in known]
        return bool(known)


def _trains(module: torch.nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


def _is_trained(leaf: Any) -> bool:
    """Whether an input is what gradients are for: nothing that was computed or loaded."""
    return isinstance(leaf, torch.Tensor) and leaf.is_leaf and leaf.requires_grad


def _version(leaf: torch.Tensor) -> int:
    """How often it was written into; one that is trained is in each step."""
    return 0 if _is_trained(leaf) else leaf._version


def _are_same(before: list[tuple[torch.Tensor, int]], now: list[tuple[torch.Tensor, int]]) -> bool:
    return len(before) == len(now) and all(
        one.shape == other.shape
        and _version(one) == version
        and (_holds_the_same(one, other) if _place(one) != _place(other) else version == later)
        for (one, version), (other, later) in zip(before, now, strict=True)
    )


def _holds_the_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one shape have the same values; only of plain ones that is known."""
    plain = all(
        type(each) is torch.Tensor and each.layout == torch.strided and not each.is_meta
        for each in (one, other)
    )
    alike = one.dtype == other.dtype and one.device == other.device
    return plain and alike and torch.equal(one, other)


def _place(tensor: torch.Tensor) -> int:
    """Where it lies; of one without storage of its own, such as a sparse one, the object."""
    return tensor.data_ptr() if tensor.layout == torch.strided else id(tensor)


def _are_edges(tensor: torch.Tensor) -> bool:
    """Pairs of nodes, as PyTorch Geometric holds them."""
    return tensor.dtype == torch.int64 and tensor.dim() == 2 and tensor.shape[0] == 2
