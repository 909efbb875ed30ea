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

_OURS = str(Path(__file__).parents[1])
_CALL = nn.Module.__call__.__code__.co_filename
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
DEPTH = 2
"""Modules that are named, the innermost last."""


class Origin(NamedTuple):
    """Where a tensor was made.

    Attributes:
        phase: of the step.
        module: classes of the modules that ran, `Block > Linear`; empty outside of modules.
        line: `folder/train.py:41`; empty where no line of the user's is on the stack.
    """

    phase: Phase
    module: str
    line: str


def origin_here(*, in_optimizer: bool) -> Origin:
    """Of a tensor that the code which calls this is about to return.

    Args:
        in_optimizer: whether an optimizer steps; a closure that it calls has gradients enabled.
    """
    frame: FrameType | None = sys._getframe(1)
    updates = in_optimizer and not torch.is_grad_enabled()
    phase: Phase = "optimizer" if updates else "forward"
    modules: list[nn.Module] = []
    line = ""
    while frame is not None and not (line and len(modules) == DEPTH):
        code = frame.f_code
        if code.co_name == "_call_impl" and code.co_filename == _CALL:
            module: Any = frame.f_locals["self"]
            if len(modules) < DEPTH and not isinstance(module, _CONTAINERS):
                modules.append(module)
        elif code.co_name == "_engine_run_backward" and not modules and not line:
            phase = "backward"
        elif not line and _is_of_user(code.co_filename):
            line = f"{short_place(code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return Origin(phase, name_of(modules[::-1]), line)


def name_of(path: Sequence[nn.Module]) -> str:
    """The classes of the innermost modules of a path, the outermost first."""
    named = [type(module).__name__ for module in path if not isinstance(module, _CONTAINERS)]
    return " > ".join(named[-DEPTH:])


@lru_cache(maxsize=4096)
def _is_of_user(filename: str) -> bool:
    return not (filename.startswith((_OURS, "<")) or is_library(filename) or "/torch/" in filename)
