"""What the model gives for each sample while the loss's reduction is measured.

Layers that treat a batch as a whole, or draw random numbers, are calmed for it: BatchNorm takes
its running statistics, dropout lets everything through. The outputs of the outermost modules then
tell whether the model still mixes the samples of a batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn.modules import activation, batchnorm, dropout
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from ..loader.batch_structure import MAX_DEPTH, paths
from ..loader.norm_inputs import compiles, modules_alive

CALMED = (batchnorm._BatchNorm, dropout._DropoutNd, activation.MultiheadAttention)
"""Not recurrent layers: cuDNN has no backward pass for them outside training mode."""
MAX_OUTPUTS = 16
MAX_COLUMNS = 256
"""Of one output, so many values of a sample are kept."""
COVERED = 0.9
"""Share of the parameters that the modules must hold whose outputs were compared."""


class Output:
    """One output of an outermost module.

    Args:
        output: with `rows` times as many rows as the batch has samples.
    """

    def __init__(self, output: torch.Tensor, num_samples: int) -> None:
        flat = output.detach().reshape(output.shape[0], -1)
        self.width = flat.shape[1]
        self.rows = output.shape[0] // num_samples
        stride = -(-self.width // MAX_COLUMNS) | 1
        self._values = flat[:, ::stride].float().cpu()
        self._num_samples = num_samples

    def differs(self, part: Output, start: int) -> float | None:
        """Share by which that of a part, from sample `start` on, is not the same.

        `None` where they cannot be compared. Rows may be the samples' own next to each other, or
        the whole batch behind itself, as two views of it are.
        """
        if (self.rows, self.width) != (part.rows, part.width):
            return None
        stop = start + part._num_samples
        views = self._values.reshape(self.rows, self._num_samples, -1)[:, start:stop]
        pairs = (
            (views.flatten(0, 1), part._values),
            (self._values[start * self.rows : stop * self.rows], part._values),
        )
        return min(
            float((mine - other).norm() / mine.norm().clamp(min=1e-30)) for mine, other in pairs
        )


class OutputWatch:
    """Calms the layers and keeps the outputs from its making to `stop`.

    Args:
        parameters: that train.

    Attributes:
        compiled: torch.compile runs the script's code, and nothing is watched or calmed: that would
            compile it anew.
    """

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        self._trained = {id(parameter): parameter.numel() for parameter in parameters}
        self._seen: set[int] = set()
        self._outputs: list[Output] = []
        self._depth = 0
        self._calmed: set[int] = set()
        self._hooks: list[Any] = []
        self._num_samples = 1
        self.compiled = compiles()
        if self.compiled:
            return
        self._hooks += (
            register_module_forward_pre_hook(self._enters),
            register_module_forward_hook(self._leaves, always_call=True),
        )
        for layer in modules_alive():
            if isinstance(layer, CALMED):
                self._hooks.append(layer.register_forward_pre_hook(self._calm))
                self._hooks.append(layer.register_forward_hook(self._let_go, always_call=True))

    def expect(self, num_samples: int) -> None:
        """The model gets a batch of so many samples next."""
        self._num_samples = num_samples

    def stop(self) -> None:
        """Takes the hooks away."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def take(self) -> list[Output]:
        """The outputs since this was last asked."""
        outputs, self._outputs, self._depth = self._outputs, [], 0
        return outputs

    def differ(self, whole: list[Output], part: list[Output], start: int) -> float | None:
        """The most by which outputs for a part differ from those for the whole batch.

        `None` where too little of the model was seen to compare them.
        """
        seen = sum(num for key, num in self._trained.items() if key in self._seen)
        if seen < COVERED * sum(self._trained.values()) or len(whole) != len(part):
            return None
        shares = [output.differs(other, start) for output, other in zip(whole, part, strict=True)]
        return max((share for share in shares if share is not None), default=None)

    def _enters(self, _module: Any, _inputs: Any) -> None:
        self._depth += 1

    def _leaves(self, module: torch.nn.Module, _inputs: Any, output: Any) -> None:
        self._depth = max(0, self._depth - 1)
        if self._depth or not torch.is_grad_enabled():
            return
        for _, leaf in paths(output, (), MAX_DEPTH):
            fits = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
            if (
                fits
                and leaf.shape[0] >= self._num_samples
                and not leaf.shape[0] % self._num_samples
            ):
                if len(self._outputs) < MAX_OUTPUTS:
                    self._outputs.append(Output(leaf, self._num_samples))
                self._seen.update(map(id, torch.nn.Module.parameters(module)))

    def _calm(self, layer: torch.nn.Module, _inputs: Any) -> None:
        if layer.training:
            layer.training = False
            self._calmed.add(id(layer))

    def _let_go(self, layer: torch.nn.Module, _inputs: Any, _output: Any) -> None:
        if id(layer) in self._calmed:
            self._calmed.discard(id(layer))
            layer.training = True
