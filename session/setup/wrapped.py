"""A command that starts the script itself, typed after `run`: `accelerate launch train.py`."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ...errors import UsageError

_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_LAUNCHERS = {
    "torchrun": ("torch", ("-m", "torch.distributed.run")),
    "accelerate": ("accelerate", ("-m", "accelerate.commands.accelerate_cli")),
}
"""Launchers as typed: the package that each belongs to, and the program behind it."""
_OTHERS = {"deepspeed", "mpirun", "mpiexec", "srun", "uv", "poetry", "horovodrun", "composer"}


class Wrapped(NamedTuple):
    """A script and what starts it.

    Attributes:
        launcher: its words up to the script's; empty where it is plain Python.
        script: a path, or the name of a module.
    """

    launcher: tuple[str, ...]
    script: str
    arguments: tuple[str, ...]
    module: bool


def unwrapped(script: str, arguments: Sequence[str]) -> Wrapped | None:
    """The script in a command that starts it; `None` for a command that begins with the script.

    Raises:
        UsageError: there is no script in it, the launcher is not installed, or it is one whose
            words cannot be told apart.
    """
    name = Path(script).name
    if _PYTHON.fullmatch(name):
        return _split(script, (), arguments)
    if name in _LAUNCHERS:
        package, program = _LAUNCHERS[name]
        if importlib.util.find_spec(package) is None:
            raise UsageError(f"{name} is not installed here.", f"Install {package}.")
        return _split(script, (sys.executable, *program), arguments)
    if name in _OTHERS and not Path(script).is_file():
        msg = f"{name} is no script, and which of its words name one is not known."
        raise UsageError(msg, f"Put batchadvisor inside: {name} ... batchadvisor run train.py.")
    return None


def _split(script: str, launcher: tuple[str, ...], words: Sequence[str]) -> Wrapped:
    for position, word in enumerate(words):
        if word in ("-m", "--module") and position + 1 < len(words):
            own = (*launcher, *words[:position]) if launcher else ()
            return Wrapped(own, words[position + 1], tuple(words[position + 2 :]), module=True)
        if word.endswith(".py"):
            own = (*launcher, *words[:position]) if launcher else ()
            return Wrapped(own, word, tuple(words[position + 1 :]), module=False)
    name = Path(script).name
    example = f"{name} launch train.py" if name == "accelerate" else f"{name} train.py"
    raise UsageError(
        f"{' '.join([name, *words])} names no script to start.",
        f"Name it: batchadvisor run {example}.",
    )


def launcher_words(command: Sequence[str], num_script_words: int) -> tuple[str, ...]:
    """The launcher and its options, as typed; empty without one.

    Args:
        command: `batchadvisor run`, its options, and the script with its arguments.
        num_script_words: of the script and its arguments.

    >>> launcher_words("batchadvisor run -q accelerate launch --cpu a.py --lr 1".split(), 3)
    ('accelerate', 'launch', '--cpu')
    """
    words = command[2 : len(command) - num_script_words]
    names = (Path(word).name in _LAUNCHERS for word in words)
    first = next((position for position, is_launcher in enumerate(names) if is_launcher), None)
    return () if first is None else tuple(words[first:])
