"""LoRA (arXiv:2106.09685): small trained layers beside layers that no longer train."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn
from torch.nn import functional

LINEAR = ("Linear", "Conv1D")
"""Classes of layers that get one: torch's, and that of the GPT-2 of transformers."""


class LowRankLayers:
    """A layer in -> rank -> out beside each chosen one, its output added.

    Args:
        roots: modules of the script.
        blocks: repeated ones; without names the linear layers in them are chosen.
        names: of modules: the whole name, its last part or a pattern with `*`.
        rank: of the layers.

    Raises:
        ValueError: no linear layer has one of the names.
    """

    def __init__(
        self,
        roots: Sequence[nn.Module],
        blocks: Sequence[nn.Module],
        names: Sequence[str],
        rank: int,
    ) -> None:
        named = {
            id(module): (name, module)
            for root in roots
            for name, module in root.named_modules()
            if type(module).__name__ in LINEAR
        }
        within = {id(module) for block in blocks for module in block.modules()}
        self._chosen = [
            module
            for key, (name, module) in named.items()
            if (any(_matches(name, each) for each in names) if names else key in within)
        ]
        if not self._chosen:
            known = sorted({name.rpartition(".")[2] for name, _ in named.values()})
            msg = (
                f"no linear layer is named {' or '.join(names)}; there are {', '.join(known[:12])}"
                if names
                else "no linear layer stands in a repeated block"
            )
            raise ValueError(msg)
        self.parameters: list[nn.Parameter] = []
        self._native: list[Callable[..., Any]] = []
        for module in self._chosen:
            self._adapt(module, rank)

    @property
    def text(self) -> str:
        """`24 Linear`."""
        kinds = Counter(type(module).__name__ for module in self._chosen)
        return ", ".join(f"{num} {kind}" for kind, num in kinds.items())

    def remove(self) -> None:
        """The layers work alone again."""
        for module in self._chosen:
            del module.forward

    def _adapt(self, module: nn.Module, rank: int) -> None:
        weight: Any = module.weight
        wide, narrow = weight.shape
        num_in, num_out = (narrow, wide) if type(module) is nn.Linear else (wide, narrow)
        down = nn.Parameter(torch.empty(rank, num_in))
        up = nn.Parameter(torch.empty(num_out, rank))
        self.parameters += [down, up]
        native = module.forward

        def forward(given: torch.Tensor) -> Any:
            out = native(given)  # first, as peft does
            return out + functional.linear(functional.linear(given, down), up) * (1 / rank)

        module.forward = forward


def _matches(name: str, wanted: str) -> bool:
    return wanted in (name, name.rpartition(".")[2]) or fnmatchcase(name, wanted)
