"""A trace document in chunks of whole events, as text.

The document is `{ header "traceEvents": [ event, event, ... ] footer }`, or a bare list of events.
It is cut where one event ends and the next begins, which is found by its looks: a cut that is
wrong shows, because the chunk before it is no valid JSON.
"""

from __future__ import annotations

import itertools
import re
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from ...errors import UsageError
from .kineto_names import EVENT_KEYS

# The bytes of a trace file, decompressed piece by piece, damaged streams included.

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
    """Yields a damaged piece up to its first wrong byte."""
    for start in range(len(packed)):
        try:
            piece = unzip.decompress(packed[start : start + 1])
        except zlib.error:
            return
        if piece:
            yield piece


NEXT_EVENT = re.compile(rb',\s*(?=\{\s*"(?:' + EVENT_KEYS.encode() + rb')"\s*:)')
"""The comma before something that looks like an event; inside of strings it may mislead."""

MOST_UNBROKEN = 64 << 20
"""A list of events without any boundary for so long is no list of events."""

_BOUNDARY = re.compile(rb"\}(?=\s*" + NEXT_EVENT.pattern + rb")")
_BLANK = 1 << 16
"""Bytes of white space from which on a piece that is nothing else is left out."""
_SPACE = b" \t\r\n"
_CHUNK = 2 << 20
_WINDOW = 1 << 16
_VALUES = tuple(bytes([value]) for value in b'["-0123456789')
"""First bytes of the entries of a list that holds no events."""
_LIST_START = re.compile(rb'"traceEvents"\s*:\s*\[')
_REMEDY = "Give the .json or .json.gz file that torch.profiler exported."


class Chunks:
    """Iterates over the chunks of a trace file.

    While it iterates, its user may hand the unreadable end of a chunk back with `push_back`, and
    must say with `close` that a chunk held the end of the list.

    Attributes:
        header: the document up to and including the list's opening bracket.
        footer: what follows the list's closing bracket; `None` until it was found.
        final: whether nothing follows the current chunk.

    Raises:
        UsageError: there is no such file, it is empty, or it is no trace.
    """

    def __init__(self, path: Path) -> None:
        self.source = Source(path)
        self.header = b""
        self.footer: bytes | None = None
        self.final = False
        self._pieces = self._dense(self.source.pieces())
        self._blanks: list[tuple[int, int]] = []
        self._start = 0
        self._wanted = 0
        self._buffer = b""
        self._left = b""
        self._read_header()

    @property
    def offset(self) -> int:
        """Where the current chunk begins in the decompressed file."""
        return self._start + sum(size for kept, size in self._blanks if kept <= self._start)

    @property
    def bare_list(self) -> bool:
        """Whether the document is the list itself."""
        return self.header.lstrip().startswith(b"[")

    def __iter__(self) -> Iterator[bytes]:
        self._wanted = _CHUNK
        for piece in itertools.chain(self._gathered(), (None,)):
            self._buffer += piece or b""
            boundary = _last_boundary(self._buffer)
            if boundary is None:
                if piece is None or len(self._buffer) < MOST_UNBROKEN:
                    self._wanted = 2 * len(self._buffer)  # not looked through again for each piece
                    continue
                boundary = len(self._buffer), len(self._buffer)
            self._wanted = _CHUNK
            stop, start = boundary
            chunk, between = self._buffer[:stop], self._buffer[stop:start]
            self._buffer = self._buffer[start:]
            yield chunk
            if self.footer is not None:
                self.footer += between + self._buffer + b"".join(self._pieces)
                return
            if self._left:
                self._buffer = self._left + between + self._buffer
            self._start += start if not self._left else stop - len(self._left)
            self._left = b""
        self.final = True
        yield self._buffer

    def _gathered(self) -> Iterator[bytes]:
        """The file's rest, as much at a time as makes the buffer as long as it should be."""
        pieces: list[bytes] = []
        size = len(self._buffer)
        for piece in self._pieces:
            pieces.append(piece)
            size += len(piece)
            if size >= self._wanted:
                yield b"".join(pieces)
                pieces, size = [], len(self._buffer)
        yield b"".join(pieces)

    def _dense(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """The pieces without those of white space alone: it may be gigabytes, between any two."""
        kept = 0
        for piece in pieces:
            if len(piece) >= _BLANK and not piece.strip(_SPACE):
                self._blanks.append((kept, len(piece)))
                continue
            kept += len(piece)
            yield piece

    def push_back(self, left: bytes) -> None:
        """The end of the chunk that is to be tried again, together with what follows it."""
        self._left = left

    def close(self, footer: bytes) -> None:
        """The list ended in this chunk; `footer` is the rest of it, without the bracket."""
        self.footer = footer

    def _read_header(self) -> None:
        text = b""
        for piece in self._pieces:
            text += piece
            start = self._list_start(text)
            if start is not None:
                self.header, self._buffer = text[:start], text[start:]
                self._start = start
                return
        self._refuse(text)

    def _list_start(self, text: bytes) -> int | None:
        """Where the first event begins, `None` if the list has not begun yet."""
        body = text.lstrip()
        if body.startswith(b"["):
            if body[1:].lstrip()[:1] in _VALUES:
                self._refuse_values()
            return len(text) - len(body) + 1
        match = _LIST_START.search(text)
        if (body and not body.startswith(b"{")) or (not match and len(text) > MOST_UNBROKEN):
            self._refuse(text)
        return match.end() if match else None

    def _refuse_values(self) -> NoReturn:
        msg = (
            f"{self.source.path} is not a profiler trace but another kind of file: a list of "
            "values, such as export_memory_timeline writes."
        )
        remedy = (
            "Give the file that export_chrome_trace wrote; for memory, `batchadvisor memory` reads "
            "what torch.cuda.memory._dump_snapshot() writes."
        )
        raise UsageError(msg, remedy)

    def _refuse(self, text: bytes) -> NoReturn:
        path, damage = self.source.path, self.source.damage
        if damage:
            msg = f"{path} cannot be read up to its first event: {damage}."
            raise UsageError(msg, "Record it again.")
        if not text.strip():
            msg = f"{path} is empty."
            raise UsageError(msg, "The profiler did not finish writing it; record it again.")
        json = text.lstrip().startswith(b"{")
        what = "it has no list `traceEvents`" if json else "it is no JSON"
        msg = f"{path} is not a profiler trace: {what}."
        raise UsageError(msg, _REMEDY)


def _last_boundary(buffer: bytes) -> tuple[int, int] | None:
    """(end of one event, start of the next): the last such pair in the buffer."""
    window = _WINDOW
    while True:
        start = max(len(buffer) - window, 0)
        last = None
        for match in _BOUNDARY.finditer(buffer, start):
            last = match.end()
        if last is not None:
            following = NEXT_EVENT.search(buffer, last)
            return last, following.end() if following else last
        if start == 0:
            return None
        window *= 16
