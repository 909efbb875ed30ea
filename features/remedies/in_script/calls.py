"""What the script calls in its loop: modules, the backward pass, and where."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ....probes.loader.compiled_modules import ModuleHooks
from ....probes.source.call_site import user_call_site
from ....records import SourceLine


class Calls:
    """The outermost modules that train, as far as they were called.

    Attributes:
        roots: modules, in the order of their first call.
        call_place: the line of the first call.
        autocast: types under which they were called.
        recomputes: whether a module was called within a backward pass: activation checkpointing.
    """

    def __init__(self) -> None:
        self.roots: list[nn.Module] = []
        self.call_place: SourceLine | None = None
        self.autocast: set[str] = set()
        self.recomputes = False
        self._hooks: ModuleHooks | None = None

    def install(self) -> None:
        """Looks at all modules until `stop`."""
        self._hooks = ModuleHooks(self._look)

    def stop(self) -> None:
        """Looks no more: hooks stand in the way of torch.compile."""
        if self._hooks is not None:
            self._hooks.remove()
            self._hooks = None

    def _look(self, module: nn.Module, _inputs: Any) -> bool:
        self.recomputes |= torch._C._current_graph_task_id() != -1
        if not (module.training and torch.is_grad_enabled()):
            return True
        if not any(parameter.requires_grad for parameter in module.parameters()):
            return True
        for kind in ("cuda", "cpu"):
            if torch.is_autocast_enabled(kind):
                self.autocast.add(str(torch.get_autocast_dtype(kind)).removeprefix("torch."))
        if not any(known is module for known in self.roots):
            self.roots.append(module)
            self.call_place = self.call_place or user_call_site()
        return True
