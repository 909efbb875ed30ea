"""Activation checkpointing of a model's repeated blocks, switched on and off."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class CheckpointedBlocks:
    """The blocks of a model that come several times; each can compute its activations again.

    A block is a member of a `ModuleList` or `Sequential` that has modules inside and stands there
    beside another of its class. Of blocks within blocks only the outer ones count.

    Args:
        trained: parameters; only modules that hold some of them count.

    Attributes:
        on: whether blocks keep only their inputs for the backward pass, as
            `torch.utils.checkpoint.checkpoint` does.
        members: the blocks.
    """

    def __init__(self, trained: Iterable[torch.Tensor]) -> None:
        self.on = False
        self.members = _repeated({id(tensor) for tensor in trained})
        self._kinds = Counter(type(block).__name__ for block in self.members)
        for block in self.members:
            block.forward = self._forward_of(block)

    @property
    def names(self) -> str:
        """`12 GPT2Block`; empty if there are none."""
        return ", ".join(f"{num} {kind}" for kind, num in self._kinds.items())

    def _forward_of(self, block: nn.Module) -> Callable[..., Any]:
        native = block.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            if not (self.on and torch.is_grad_enabled()):
                return native(*args, **kwargs)
            return checkpoint(native, *args, use_reentrant=False, **kwargs)

        return forward


def _repeated(trained: set[int]) -> list[nn.Module]:
    lists = [
        module for module in gc.get_objects() if type(module) in (nn.ModuleList, nn.Sequential)
    ]
    blocks: dict[int, nn.Module] = {}
    for members in lists:
        kinds = Counter(type(member) for member in members)
        for member in members:
            if (
                kinds[type(member)] > 1
                and any(True for _ in member.children())
                and any(id(parameter) in trained for parameter in member.parameters())
            ):
                blocks[id(member)] = member
    inner = {
        id(module) for block in blocks.values() for module in block.modules() if module is not block
    }
    return [block for key, block in blocks.items() if key not in inner]
