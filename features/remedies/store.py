"""`remedies.json` and `remedies.diff` in the folder of a run."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ...errors import RunError
from ...session.recording.store import write_whole
from .records import Remedies

FILE, DIFF = "remedies.json", "remedies.diff"


def save(folder: Path, remedies: Remedies) -> None:
    """Writes the file whole or not at all.

    Raises:
        RunError: it cannot be written.
    """
    data = msgspec.json.format(msgspec.json.encode(remedies), indent=1)
    _write(folder / FILE, data + b"\n")


def save_diff(folder: Path, diff: str) -> None:
    """Writes what is worth writing as `git apply` takes it; no file where there is nothing.

    Raises:
        RunError: it cannot be written.
    """
    if diff:
        _write(folder / DIFF, diff.encode())
    else:
        (folder / DIFF).unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    try:
        write_whole(path, data)
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror or error}."
        raise RunError(msg, "Free some space, and try again.") from error


def read(folder: Path) -> Remedies | None:
    """What was tried in a run's folder; `None` where nothing was, or the file cannot be read."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Remedies)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
