"""The options of a run, for the processes that run a part of it.

They go through a file: a script's arguments may be longer than a variable can be.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import msgspec

from ...errors import UsageError
from .options import RunOptions

OPTIONS_VARIABLE = "BATCHADVISOR_OPTIONS"
"""Names the file in the environment of `batchadvisor run SCRIPT`, which then parses no options."""


def hand_over(options: RunOptions, path: Path) -> dict[str, str]:
    """Writes the options to a file, and gives the variable for a process that shall have them.

    Args:
        options: of a script; a live function stays in its process.
        path: of the file, which must stay until that process has begun.
    """
    path.write_bytes(msgspec.json.encode(options, enc_hook=_plain))
    return {OPTIONS_VARIABLE: str(path.resolve())}


def handed_over(environment: MutableMapping[str, str]) -> RunOptions | None:
    """The options that this process was started with, `None` if it was given none.

    The variable leaves the environment: what this process starts is another command.

    Raises:
        UsageError: the file cannot be read.
    """
    path = environment.pop(OPTIONS_VARIABLE, None)
    if path is None:
        return None
    try:
        return _decoder.decode(Path(path).read_bytes())
    except OSError as error:  # started on another machine
        msg = f"cannot read the options of this run from {path}: {error.strerror or error}."
        raise UsageError(msg, "Start it in a folder that all machines share.") from error


def _plain(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(type(value))


def _path(kind: type, value: Any) -> Any:
    if kind is Path:
        return Path(value)
    raise NotImplementedError(kind)


_decoder = msgspec.json.Decoder(RunOptions, dec_hook=_path)
