"""What a checkpoint held that the script opens anew in order to save into it.

`open(path, "wb")` empties the file before `torch.save` is called, which writes nothing here: the
weights of a real training would be gone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import tempfile
from typing import IO, Any, NamedTuple

_MAGIC = (b"PK\x03\x04", b"\x80\x02\x8a\x0a")
"""How files of `torch.save` begin: a zip archive, or the pickled number of the older format."""
_CHUNK_BYTES = 2**20


class _Held(NamedTuple):
    content: IO[bytes]
    status: os.stat_result


class Overwritten:
    """Keeps a copy of each checkpoint that is opened anew, until it is known to stay."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._pid = os.getpid()

    def install(self) -> None:
        """Starts watching; there is no way back, the process is thrown away."""
        sys.addaudithook(self._audit)

    def put_back(self, file: Any) -> bool:
        """Whether an open file, into which nothing was written, holds again what it held before."""
        with contextlib.suppress(AttributeError, TypeError, OSError, ValueError):
            held = self._held.get(_absolute(file.name))
            number = file.fileno()
            if held is None or file.tell() or not os.path.samestat(held.status, os.fstat(number)):
                return False
            held.content.seek(0)
            start = 0
            while chunk := held.content.read(_CHUNK_BYTES):
                start += os.pwrite(number, chunk, start)
            os.utime(number, ns=(held.status.st_atime_ns, held.status.st_mtime_ns))
            return True
        return False

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event != "open" or not isinstance(args[2], int) or not args[2] & os.O_TRUNC:
            return
        if os.getpid() == self._pid and isinstance(args[0], (str, bytes, os.PathLike)):
            with contextlib.suppress(OSError, ValueError):  # it is missing, or there is no room
                self._hold(_absolute(args[0]))

    def _hold(self, path: str) -> None:
        known = self._held.pop(path, None)
        status = os.stat(path)  # noqa: PTH116
        if known is not None and _is_the_same(known.status, status):
            self._held[path] = known
        elif stat.S_ISREG(status.st_mode):
            with open(path, "rb") as file:  # noqa: PTH123
                if not file.read(len(_MAGIC[0])).startswith(_MAGIC):
                    return
                file.seek(0)
                content = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as its name
                shutil.copyfileobj(file, content)
            self._held[path] = _Held(content, status)


def _absolute(path: Any) -> str:
    return os.path.abspath(os.fsdecode(path))  # noqa: PTH100  no link is followed


def _is_the_same(held: os.stat_result, other: os.stat_result) -> bool:
    times = held.st_mtime_ns == other.st_mtime_ns
    return times and held.st_size == other.st_size and os.path.samestat(held, other)
