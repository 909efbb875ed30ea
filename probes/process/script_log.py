"""What the log of a script's output says of its end."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_COLLECTIVE = (
    "/torch/distributed/",
    "/torch/autograd/graph.py",
    "/probes/distributed/lockstep.py",
)
"""Where the main thread is while it waits: DDP's collectives run inside the backward pass, and
between two steps we hold a rank back until the others have come."""


def size_of(log: Path) -> int:
    """Bytes in the log; 0 once somebody removed it."""
    with contextlib.suppress(OSError):
        return log.stat().st_size
    return 0


def end_of(log: Path, num_bytes: int = 8000, *, since: int = 0) -> str:
    """The last that the script printed, after the first `since` bytes."""
    try:
        with log.open("rb") as file:
            file.seek(max(since, file.seek(0, os.SEEK_END) - num_bytes))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def waits_for_others(log: Path, offset: int) -> bool:
    """Whether the stacks written after `offset` show the main thread inside a collective."""
    with contextlib.suppress(OSError):
        text = log.read_bytes()[offset:].decode(errors="replace")
        frames = text.partition("Current thread")[2].splitlines()[1:7]
        return any(part in frame for frame in frames for part in _COLLECTIVE)
    return False
