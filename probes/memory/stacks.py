"""What the stack of an allocation tells: the user's line, and what the memory is for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from ...records import MemoryCategory

_TORCH = re.compile(r"(?:^|/)torch/(?:[a-z_]+/)*[^/]+\.py$")
_LIBRARIES = re.compile(
    r"(?:^|/)(?:site-packages|dist-packages)/|(?:^|/)lib/python3[^/]*/|^<frozen "
)
_NO_FILES = ("", "??", "<string>", "none")
_BACKWARD = re.compile(r"torch::autograd::(?:.*Engine|generated::.*Backward|Node::)")
CATEGORIES: Mapping[str, MemoryCategory] = {
    "parameter": "parameters", "gradient": "backward", "optimizer_state": "optimizer",
    "activation": "forward",
}  # fmt: skip
"""The `category` that torch writes where a snapshot is made of a profile."""
_BUILDING = {"_apply", "to", "convert", "cuda", "_load_from_state_dict", "reset_parameters"}


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack in short.

    Attributes:
        line: `folder/train.py:41`, the user's line; empty where no Python frame is known.
        function: that the line stands in.
        category: what its frames prove.
        known: whether any frame was recorded.
        library: whether the line is of a library, as no other frame is there.
        outer: file and line of each Python frame, the outermost first.
    """

    line: str
    function: str
    category: MemoryCategory
    known: bool
    library: bool = False
    outer: tuple[tuple[str, int], ...] = ()

    @property
    def steps_optimizer(self) -> bool:
        """Whether the optimizer's code asked for the memory."""
        return self.category == "optimizer"


NO_STACK = Stack("", "", "unknown", known=False)


def stack_of(frames: Iterable[tuple[str, int, str]], category: str = "") -> Stack:
    """The short form of a stack.

    Args:
        frames: file, line and function of each, the innermost first, as torch records them.
        category: what the snapshot itself says, from a profile; only known words count.
    """
    listed = [(name.replace("\\", "/"), number, function) for name, number, function in frames]
    own = CATEGORIES.get(category)
    if not listed:
        return NO_STACK if own is None else Stack("", "", own, known=False)
    python = [frame for frame in listed if _is_python(frame)]
    mine = next((frame for frame in python if not is_library(frame[0])), None)
    outside = mine or next((frame for frame in python if not _TORCH.search(frame[0])), None)
    line = "" if outside is None else f"{short_place(outside[0])}:{outside[1]}"
    return Stack(
        line=line,
        function="" if outside is None else outside[2],
        category=own or _category(listed),
        known=True,
        library=outside is not None and mine is None,
        outer=tuple((name, number) for name, number, _ in reversed(python)),
    )


def _is_python(frame: tuple[str, int, str]) -> bool:
    name = frame[0]
    return (
        name not in _NO_FILES
        and "::" not in frame[2]
        and (name.endswith(".py") or name.startswith("<ipython") or "/ipykernel_" in name)
    )


def is_library(name: str) -> bool:
    """Whether a file is of an installed package, or of Python itself."""
    return bool(_LIBRARIES.search(name))


def short_place(name: str) -> str:
    """A file in its folder: names of files alone repeat."""
    return "/".join(PurePosixPath(name).parts[-2:])


def _category(frames: Iterable[tuple[str, int, str]]) -> MemoryCategory:
    """Finds the category by the innermost frame that proves something."""
    for name, _, function in frames:
        if "torch/optim/" in name:
            return "optimizer"
        if _BACKWARD.search(function):
            return "backward"
        if "torch/autograd/" in name and function in ("backward", "_engine_run_backward"):
            return "backward"
        if "torch/distributed/" in name:
            return "communication"
        if name.endswith(("torch/nn/parameter.py", "torch/nn/init.py")):
            return "parameters"
        if "torch/nn/modules/" in name:
            built = function in _BUILDING or function in ("__init__", "<lambda>")
            return "parameters" if built else "forward"
        if name.endswith("torch/nn/functional.py"):
            return "forward"
    return "unknown"
