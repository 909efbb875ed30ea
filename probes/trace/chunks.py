"""A trace document in chunks of whole events, as text.

The document is `{ header "traceEvents": [ event, event, ... ] footer }`, or a bare list of events.
It is cut where one event ends and the next begins, which is found by its looks: a cut that is
wrong shows, because the chunk before it is no valid JSON.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from ...errors import UsageError
from .mending import EVENT_KEYS
from .source import Source

NEXT_EVENT = re.compile(rb',\s*(?=\{\s*"(?:' + EVENT_KEYS.encode() + rb')"\s*:)')
"""The comma before something that looks like an event; inside of strings it may mislead."""

MOST_UNBROKEN = 64 << 20
"""A list of events without any boundary for so long is no list of events."""

_CHUNK = 2 << 20
_WINDOW = 1 << 16
_LIST_START = re.compile(rb'"traceEvents"\s*:\s*\[')
_REMEDY = "Give the .json or .json.gz file that torch.profiler exported."


class Chunks:
    """Iterates over the chunks of a trace file.

    While it iterates, its user may hand the unreadable end of a chunk back with `push_back`, and
    must say with `close` that a chunk held the end of the list.

    Attributes:
        header: the document up to and including the list's opening bracket.
        footer: what follows the list's closing bracket; `None` until it was found.
        offset: where the current chunk begins in the decompressed file.
        final: whether nothing follows the current chunk.

    Raises:
        UsageError: there is no such file, it is empty, or it is no trace.
    """

    def __init__(self, path: Path) -> None:
        self.source = Source(path)
        self.header = b""
        self.footer: bytes | None = None
        self.offset = 0
        self.final = False
        self._pieces = self.source.pieces()
        self._buffer = b""
        self._left = b""
        self._read_header()

    @property
    def bare_list(self) -> bool:
        """Whether the document is the list itself."""
        return self.header.lstrip().startswith(b"[")

    def __iter__(self) -> Iterator[bytes]:
        for piece in itertools.chain(self._pieces, (None,)):
            self._buffer += piece or b""
            if piece is not None and len(self._buffer) < _CHUNK:
                continue
            boundary = _last_boundary(self._buffer)
            if boundary is None:
                if piece is None or len(self._buffer) < MOST_UNBROKEN:
                    continue
                boundary = len(self._buffer), len(self._buffer)
            stop, start = boundary
            chunk, between = self._buffer[:stop], self._buffer[stop:start]
            self._buffer = self._buffer[start:]
            yield chunk
            if self.footer is not None:
                self.footer += between + self._buffer + b"".join(self._pieces)
                return
            if self._left:
                self._buffer = self._left + between + self._buffer
            self.offset += start if not self._left else stop - len(self._left)
            self._left = b""
        self.final = True
        yield self._buffer

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
                self.offset = start
                return
        self._refuse(text)

    def _list_start(self, text: bytes) -> int | None:
        """Where the first event begins, `None` if the list has not begun yet."""
        body = text.lstrip()
        if body.startswith(b"["):
            return len(text) - len(body) + 1
        match = _LIST_START.search(text)
        if (body and not body.startswith(b"{")) or (not match and len(text) > MOST_UNBROKEN):
            self._refuse(text)
        return match.end() if match else None

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
        for match in NEXT_EVENT.finditer(buffer, start):
            comma = match.start()
            if buffer[max(comma - 64, 0) : comma].rstrip().endswith(b"}"):
                last = comma, match.end()
        if last is not None or start == 0:
            return last
        window *= 16
