"""The bytes of a trace file, decompressed piece by piece, damaged streams included."""

from __future__ import annotations

import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

from ...errors import UsageError

PIECE = 1 << 20
"""Bytes read, and at most handed on, at a time."""

_GZIP = b"\x1f\x8b"
_UTF8_MARK = b"\xef\xbb\xbf"
_GZIP_WINDOW = 31  # zlib: 15 bits of window, and a gzip header


class Source:
    """Reads a plain or gzipped file in pieces; which of both it is, its first bytes say.

    Attributes:
        compressed: whether the file is gzipped.
        damage: what is wrong with the gzip stream, `""` if nothing was found so far.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage = ""
        try:
            mode = path.stat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                msg = f"{path} is a pipe or a device; a trace is read more than once."
                raise UsageError(msg, "Save it to a file first.")
            with path.open("rb") as file:
                start = file.read(3)
        except FileNotFoundError:
            msg = f"There is no trace file {path}."
            raise UsageError(msg, "Check the path.") from None
        except IsADirectoryError:
            msg = f"{path} is a folder, not a trace file."
            raise UsageError(msg, "Name one .json or .json.gz file in it.") from None
        except OSError as error:
            msg = f"{path} cannot be read: {error.strerror or error}."
            raise UsageError(msg, "Check the file's permissions.") from None
        if not start:
            msg = f"{path} is empty."
            raise UsageError(msg, "The profiler did not finish writing it; record it again.")
        self.compressed = start.startswith(_GZIP)

    def pieces(self) -> Iterator[bytes]:
        """The content, at most `PIECE` bytes at a time."""
        pieces = self._unzipped() if self.compressed else self._plain()
        first = next(pieces, b"")
        yield first.removeprefix(_UTF8_MARK)
        yield from pieces

    def _plain(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as file:
                while piece := file.read(PIECE):
                    yield piece
        except OSError as error:
            self.damage = f"reading stopped: {error.strerror or error}"

    def _unzipped(self) -> Iterator[bytes]:
        unzip = zlib.decompressobj(wbits=_GZIP_WINDOW)
        for packed in self._plain():
            rest = packed
            while rest:
                if unzip.eof:  # gzip files may hold several members
                    rest = rest.lstrip(b"\0")  # padding
                    if not rest:
                        break
                    if not rest.startswith(_GZIP[: len(rest)]):
                        self.damage = "something else follows the gzip stream"
                        return
                    unzip = zlib.decompressobj(wbits=_GZIP_WINDOW)
                saved = unzip.copy()
                try:
                    piece = unzip.decompress(rest, PIECE)
                except zlib.error as error:
                    self.damage = f"the gzip stream is damaged: {error}"
                    yield from _until_error(saved, rest)
                    return
                yield piece
                rest = unzip.unconsumed_tail or unzip.unused_data
        while not unzip.eof:
            try:
                piece = unzip.decompress(unzip.unconsumed_tail, PIECE)
            except zlib.error:
                piece = b""
            if not piece:
                self.damage = self.damage or "the gzip stream is cut"
                return
            yield piece


def _until_error(unzip: zlib._Decompress, packed: bytes) -> Iterator[bytes]:
    """What a damaged piece holds before its first wrong byte."""
    for start in range(len(packed)):
        try:
            piece = unzip.decompress(packed[start : start + 1])
        except zlib.error:
            return
        if piece:
            yield piece
