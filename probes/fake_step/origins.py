"""Which module and which line of the script asked for a tensor, and what for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from ..memory.stacks import is_library, short_place

Phase = Literal["forward", "backward", "optimizer"]
Kind = Literal["module", "loss", "backward", "user"]

_OURS = str(Path(__file__).parents[1])
_CALL = nn.Module.__call__.__code__.co_filename
_FUNCTIONS = nn.functional.__file__
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
DEPTH = 2
"""Modules that are named, the innermost last."""


class Origin(NamedTuple):
    """Where a tensor was made.

    Attributes:
        phase: of the step.
        module: classes of the modules that ran, `Block > Linear`; empty outside of modules.
        line: `folder/train.py:41`; empty where no line of the user's is on the stack.
        loss_input: address of the storage that one of torch's loss functions was given, where it
            made the tensor; 0 elsewhere.
    """

    phase: Phase
    module: str
    line: str
    loss_input: int = 0


def origin_here(*, in_optimizer: bool) -> Origin:
    """Finds the origin of a tensor that the code which calls this is about to return.

    Args:
        in_optimizer: whether an optimizer steps; a closure that it calls has gradients enabled.
    """
    frame: FrameType | None = sys._getframe(1)
    updates = in_optimizer and not torch.is_grad_enabled()
    phase: Phase = "optimizer" if updates else "forward"
    modules: list[nn.Module] = []
    line = ""
    loss_input = 0
    while frame is not None and not (line and len(modules) == DEPTH):
        kind: Kind | None = None
        if not _tells_nothing(frame.f_globals.get("__file__")):
            code = frame.f_code  # is an audit event: a worker pays for each
            kind = _kind_of(code.co_filename, code.co_name)
        if kind is not None:
            if kind == "module":
                module: Any = frame.f_locals["self"]
                if len(modules) < DEPTH and not isinstance(module, _CONTAINERS):
                    modules.append(module)
            elif kind == "loss":
                loss_input = loss_input or _storage_of(frame.f_locals.get("input"))
            elif kind == "backward":
                phase = phase if modules or line else "backward"
            elif not line:
                line = f"{_place(code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return Origin(phase, name_of(modules[::-1]), line, loss_input)


@lru_cache(maxsize=4096)
def _tells_nothing(file: Any) -> bool:
    """Whether nothing in this file of a library's, or of ours, means anything here."""
    return (
        isinstance(file, str)
        and file not in (_CALL, _FUNCTIONS)
        and "/torch/autograd/" not in file
        and not is_of_user(file)
    )


@lru_cache(maxsize=4096)
def _kind_of(file: str, function: str) -> Kind | None:
    """The kind of work that a function of a file shows; `None` if it shows none."""
    if function == "_call_impl" and file == _CALL:
        return "module"
    if file == _FUNCTIONS and _is_loss(function):
        return "loss"
    if function == "_engine_run_backward":
        return "backward"
    return "user" if is_of_user(file) else None


def name_of(path: Sequence[nn.Module]) -> str:
    """The classes of the innermost modules of a path, the outermost first."""
    named = [type(module).__name__ for module in path if not isinstance(module, _CONTAINERS)]
    return " > ".join(named[-DEPTH:])


def _is_loss(name: str) -> bool:
    return name.endswith(("_loss", "cross_entropy", "cross_entropy_with_logits", "_div"))


def _storage_of(tensor: Any) -> int:
    return tensor.untyped_storage()._cdata if isinstance(tensor, torch.Tensor) else 0


_place = lru_cache(maxsize=4096)(short_place)


@lru_cache(maxsize=4096)
def is_of_user(filename: str) -> bool:
    """Whether a file of code is neither ours nor a library's."""
    return not (filename.startswith((_OURS, "<")) or is_library(filename) or "/torch/" in filename)
