"""Where torch.compile runs the script's code, our hooks make way.

A hook on every module, or torch's flop counter around a step, is one more thing that compiled code
is valid for: dynamo compiles anew, and after the counter it runs the script's code uncompiled for
the rest of the process.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakSet

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook


class ModuleHooks:
    """Looks at the modules that are called, the outer ones first; at compiled modules alone from
    the moment at which torch.compile is used, since their own hooks stand outside of what is
    compiled.

    Args:
        look: is given a module and its inputs, as torch gives them to hooks; where it returns True,
            the modules inside that one are not looked at.
        left: is given each module that was left, also where it raised.
    """

    def __init__(
        self,
        look: Callable[[torch.nn.Module, Any], bool],
        left: Callable[[torch.nn.Module], None] | None = None,
    ) -> None:
        self._look, self._left = look, left
        self._depth = self._told_at = 0
        self._hooks: list[Any] = []
        if compiles():
            self._hook(compiled_modules())
        else:
            self._hooks = [
                register_module_forward_pre_hook(self._enter),
                register_module_forward_hook(self._leave, always_call=True),
            ]
        _in_place.add(self)

    def make_way(self) -> None:
        """Something of the script is compiled from now on."""
        self._unhook()
        self._depth = self._told_at = 0  # of other modules than from now on
        self._hook(compiled_modules())

    def remove(self) -> None:
        """Takes the hooks away."""
        _in_place.discard(self)
        self._unhook()

    def _enter(self, module: torch.nn.Module, inputs: Any) -> None:
        self._depth += 1
        if not self._told_at and self._look(module, inputs):
            self._told_at = self._depth

    def _leave(self, module: torch.nn.Module, _inputs: Any, _output: Any) -> None:
        if self._told_at == self._depth:
            self._told_at = 0
        self._depth = max(0, self._depth - 1)
        if self._left is not None:
            self._left(module)

    def _hook(self, modules: Iterable[torch.nn.Module]) -> None:
        for module in modules:
            self._hooks += [
                module.register_forward_pre_hook(self._enter),
                module.register_forward_hook(self._leave, always_call=True),
            ]

    def _unhook(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []


_in_place: WeakSet[ModuleHooks] = WeakSet()


def watch_compile() -> None:
    """Makes torch.compile tell the hooks; for a process that ends with the script."""
    native = torch.compile

    # The name in torch is also what Module.compile() and the decorator call.
    @functools.wraps(native)
    def compile_and_tell(*args: Any, **kwargs: Any) -> Any:
        compiled = native(*args, **kwargs)
        for hooks in list(_in_place):
            hooks.make_way()
        return compiled

    torch.compile = compile_and_tell


def compiled_modules() -> list[torch.nn.Module]:
    """The modules alive that torch.compile made of others; their own hooks are not compiled."""
    wrapper = getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule", None)
    if wrapper is None:
        return []
    return [thing for thing in gc.get_objects() if type(thing) is wrapper]


def compiles() -> bool:
    """Whether torch.compile has compiled anything here, a module or a function."""
    if compiled_modules() or any(
        module.__dict__.get("_compiled_call_impl") for module in modules_alive()
    ):
        return True
    utils = sys.modules.get("torch._dynamo.utils")
    return utils is not None and utils.counters["frames"]["total"] > 0


def modules_alive() -> list[torch.nn.Module]:
    """All modules of this process."""
    # type(), not isinstance(): some proxies answer isinstance by loading what they stand for.
    return [
        candidate for candidate in gc.get_objects() if issubclass(type(candidate), torch.nn.Module)
    ]
