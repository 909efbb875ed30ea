"""Changes the script's model and optimizers for a variant, and back again."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ...records import Variant
from .low_rank_layers import LowRankLayers
from .model_tree import roots_of
from .other_optimizers import OtherOptimizer


class Changes:
    """The changes that are in force now.

    Args:
        trained: parameters that the script trains.
        blocks: modules that the model repeats.

    Attributes:
        text: what was changed, in words; empty if nothing was.
        trained: parameters that are trained now.
        gone: parameters that the changed script would not hold.
        other: the optimizer in place of the script's own, if there is one.
    """

    def __init__(self, trained: Sequence[torch.Tensor], blocks: Sequence[nn.Module]) -> None:
        self._own, self._blocks = trained, blocks
        self._roots: list[nn.Module] | None = None
        self._undo = contextlib.ExitStack()
        self.text = ""
        self.trained = trained
        self.gone: list[torch.Tensor] = []
        self.other: OtherOptimizer | None = None

    def begin(self, variant: Variant, optimizers: Iterable[Optimizer]) -> None:
        """Undoes the changes so far and makes those of a variant.

        Gradients are gone where other parameters train than before.

        Raises:
            ValueError: it cannot be made.
        """
        before = self.trained
        self._undo.close()
        self.text, self.trained, self.gone, self.other = "", self._own, [], None
        optimizers = list(optimizers)
        if variant.optimizer:
            self.other = OtherOptimizer(variant.optimizer)
            self._undo.enter_context(_without_state(optimizers))
        if variant.accumulates:
            if any(getattr(each, "sparse", False) is True for each in self._modules()):
                msg = "a sparse gradient grows with each batch, and it is not known how many rows"
                raise ValueError(f"{msg} the batches share")
            self._undo.enter_context(_kept_gradients())
        if variant.lora_rank:
            self._undo.callback(self._forget_gradients)
            self._adapt(variant, optimizers)
        if variant.ranks > 1:
            self._undo.callback(self._forget_gradients)
            self._shard(variant, optimizers)
        if self.trained is not self._own or before is not self._own:
            self._forget_gradients()

    # inside ----------------------------------------------------------------------------------

    def _forget_gradients(self) -> None:
        for tensor in (*self._own, *self.trained):
            tensor.grad = None

    def _modules(self) -> Iterator[nn.Module]:
        for root in self._found_roots():
            yield from root.modules()

    def _found_roots(self) -> list[nn.Module]:
        if self._roots is None:
            self._roots = roots_of(self._own)
        return self._roots

    def _adapt(self, variant: Variant, optimizers: list[Optimizer]) -> None:
        layers = LowRankLayers(self._found_roots(), self._blocks, variant.lora, variant.lora_rank)
        self._undo.callback(layers.remove)
        self._undo.enter_context(_frozen(self._own))
        self._undo.enter_context(_without_state(optimizers))
        first = optimizers[0].param_groups[0]
        self._undo.callback(first.__setitem__, "params", first["params"])
        first["params"] = [*first["params"], *layers.parameters]
        self.text, self.trained = layers.text, layers.parameters

    def _shard(self, variant: Variant, optimizers: list[Optimizer]) -> None:
        from .sharded_model import ShardedModel

        sharded = ShardedModel(self._found_roots(), self._blocks, variant.ranks, bf16=variant.bf16)
        self._undo.callback(sharded.remove)
        self._undo.enter_context(_without_state(optimizers))
        taken, self.gone = sharded.in_place_of, sharded.gone
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            self._undo.callback(group.__setitem__, "params", group["params"])
            group["params"] = [taken.get(id(p), p) for p in group["params"]]
        self.trained = [taken.get(id(p), p) for p in self.trained]
        self.text = f"{len(self._blocks)} blocks and the rest"


@contextlib.contextmanager
def _without_state(optimizers: Iterable[Optimizer]) -> Iterator[None]:
    was = [(optimizer, optimizer.state) for optimizer in optimizers]
    for optimizer, _ in was:
        optimizer.state = defaultdict(dict)
    try:
        yield
    finally:
        for optimizer, state in was:
            optimizer.state = state


@contextlib.contextmanager
def _frozen(parameters: Iterable[torch.Tensor]) -> Iterator[None]:
    trained = [tensor for tensor in parameters if tensor.requires_grad]
    for tensor in trained:
        tensor.requires_grad_(False)
    try:
        yield
    finally:
        for tensor in trained:
            tensor.requires_grad_(True)


@contextlib.contextmanager
def _kept_gradients() -> Iterator[None]:
    """Keeps the gradients of earlier micro-batches, as the later ones of a step find them."""
    classes: tuple[Any, ...] = (Optimizer, nn.Module)
    was = [each.zero_grad for each in classes]

    def keep(*_args: Any, **_kwargs: Any) -> None:
        pass

    for each in classes:
        each.zero_grad = keep
    try:
        yield
    finally:
        for each, native in zip(classes, was, strict=True):
            each.zero_grad = native
