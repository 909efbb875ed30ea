"""Where torch.compile runs the script's code, our looks make way.

A hook on every module, or torch's flop counter around a step, is one more thing that compiled code
is valid for: dynamo compiles anew, and after the counter it runs the script's code uncompiled for
the rest of the process.
"""

from __future__ import annotations

import functools
import gc
import sys
from typing import Any, Protocol
from weakref import WeakSet

import torch


class Look(Protocol):
    """A look at what modules are given."""

    def make_way(self) -> None:
        """Something of the script is compiled from now on."""


_looks: WeakSet[Any] = WeakSet()


def begin_look(look: Look) -> None:
    """The look is told of all that is compiled from now on."""
    _looks.add(look)


def end_look(look: Look) -> None:
    """The look is over."""
    _looks.discard(look)


def tell_looks() -> None:
    """Makes torch.compile tell the looks; for a process that ends with the script."""
    native = torch.compile

    # The name in torch is also what Module.compile() and the decorator call.
    @functools.wraps(native)
    def compile_and_tell(*args: Any, **kwargs: Any) -> Any:
        compiled = native(*args, **kwargs)
        for look in list(_looks):
            look.make_way()
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
