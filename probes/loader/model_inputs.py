"""What the model is fed with: where no loader shows the batch size, a tensor may."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

AS_ASKED = "asked"
"""The proof of a size that nothing shows; see records.Trial."""


class ModelInputs:
    """The length of the first tensor that the outermost module was given, until it is stopped.

    Attributes:
        lead: that length in the last call with gradients enabled.
    """

    def __init__(self) -> None:
        self.lead: int | None = None
        self._depth = 0
        self._hooks = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]

    def forget(self) -> None:
        self.lead = None

    def stop(self) -> None:
        """Takes the hooks away; timed steps run without them."""
        for hook in self._hooks:
            hook.remove()

    def _enter(self, _module: Any, inputs: Any) -> None:
        self._depth += 1
        if self._depth == 1 and torch.is_grad_enabled():
            first = next((value for value in inputs if isinstance(value, torch.Tensor)), None)
            if first is not None and first.dim():
                self.lead = int(first.shape[0])

    def _leave(self, _module: Any, _inputs: Any, _output: Any) -> None:
        self._depth -= 1
