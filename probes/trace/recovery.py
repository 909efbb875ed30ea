"""Finds the events in a chunk that is no valid JSON, one by one."""

from __future__ import annotations

import bisect
import codecs
import json
import re

import msgspec

from .chunks import NEXT_EVENT
from .mending import is_valid, mend

_LIST_END = re.compile(rb"\}\s*(?:,\s*)?(\])\s*(?:,\s*\"|\}\s*\Z|\Z)")
_LOOSE = json.JSONDecoder(strict=False, parse_int=len)  # numbers of any length
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SPACE = b", \t\r\n"
_WINDOW = 1 << 16
"""An event that is not read within so many bytes of its chunk's end waits for the next chunk."""
_DECODER = codecs.getincrementaldecoder("utf-8")  # it takes a character cut by the window
_MOST_JOINED = 4
"""So many pieces are tried as one event when a string looks like the start of an event."""


class Found(msgspec.Struct, kw_only=True):
    """What a chunk holds.

    Attributes:
        events: text of each readable event, valid JSON.
        num_mended: events among them that were not valid before.
        num_lost: events that could not be read.
        footer: what follows the list of events; `None` while the list goes on.
        left: an unreadable end, to be tried again together with what follows it.
    """

    events: list[bytes] = msgspec.field(default_factory=list)
    num_mended: int = 0
    num_lost: int = 0
    footer: bytes | None = None
    left: bytes = b""


def find_events(chunk: bytes, *, final: bool) -> Found:
    """Finds what can be read, mended if need be.

    Args:
        chunk: events separated by commas, without the list's brackets; the last chunk of a file
            goes on with the list's end and the rest of the document.
        final: whether nothing follows the chunk, so that nothing may be left.
    """
    walk = _Walk(chunk)
    walk.run(final=final)
    return walk.found


class _Walk:
    """Goes through a chunk, from one thing that looks like an event to the next."""

    def __init__(self, chunk: bytes) -> None:
        self.chunk = chunk
        self.starts = [0, *(match.end() for match in NEXT_EVENT.finditer(chunk))]
        self.bounds = [*self.starts[1:], len(chunk)]
        self.found = Found()

    def run(self, *, final: bool) -> None:
        found, index = self.found, 0
        while index < len(self.starts) and found.footer is None:
            start = self.starts[index]
            piece = self.piece(index, index)
            if piece.startswith(b"{") and is_valid(piece):
                found.events.append(piece)
            elif piece.startswith(b"]"):
                found.footer = self.chunk[self.chunk.index(b"]", start) + 1 :]
            elif piece:
                last = self.difficult(index)
                if last is None and not final and len(self.chunk) - start < _WINDOW:
                    found.left = self.chunk[start:]
                    return
                found.num_lost += last is None
                index = index if last is None else last
            index += 1

    def piece(self, first: int, last: int) -> bytes:
        return self.chunk[self.starts[first] : self.bounds[last]].strip(_SPACE)

    def difficult(self, index: int) -> int | None:
        """Reads what begins at `index`; returns the last place used, `None` if it is lost."""
        last = self.nested(index)
        if last is not None:
            return last
        for last in range(index, min(index + _MOST_JOINED, len(self.starts))):
            if last > index and _is_event(self.piece(last, last)):
                break
            if self.mended(index, last, complete=True):
                return last
        return index if self.mended(index, index, complete=False) else None

    def nested(self, index: int) -> int | None:
        """A valid event whose arguments hold what looks like events, or that ends the list."""
        start = self.starts[index]
        text = self.chunk[start : max(start + _WINDOW, self.bounds[index])]
        begin = start + len(text) - len(text.lstrip(_SPACE))
        try:
            plain = _DECODER().decode(text.lstrip(_SPACE))
            event = plain[: _LOOSE.raw_decode(plain)[1]].encode()
        except (ValueError, RecursionError):
            return None
        rest = plain[len(event.decode()) :].lstrip(" \t\r\n").encode()
        ends_list = rest.lstrip(_SPACE).startswith(b"]")
        if not is_valid(event) or not (ends_list or not rest or NEXT_EVENT.match(rest)):
            return None
        stop = begin + len(event)
        self.found.events.append(event)
        if ends_list:
            self.found.footer = self.chunk[self.chunk.index(b"]", stop) + 1 :]
        return max(bisect.bisect_left(self.starts, stop) - 1, index)

    def mended(self, first: int, last: int, *, complete: bool) -> bool:
        """Mends the text of an event, with the end of the list after it or without."""
        piece = self.piece(first, last)
        texts: list[tuple[bytes, bytes | None]] = [(piece, None)]
        texts += [(piece[: m.start() + 1], piece[m.end(1) :]) for m in _LIST_END.finditer(piece)]
        for text, footer in texts:
            plain = text.decode("utf-8", "replace")
            event = plain if _is_event(plain.encode()) else mend(plain)
            if event is not None and (not complete or _is_complete(event)):
                self.found.events.append(event.encode())
                self.found.num_mended += 1
                if footer is not None:
                    self.found.footer = footer + self.chunk[self.bounds[last] :]
                return True
        return False


def _is_complete(event: str) -> bool:
    """Whether a mended event still has what its kind needs, none of it lost in a string."""
    fields = _FIELDS.decode(event)
    return bytes(fields.get("ph", b"")) != b'"X"' or fields.keys() >= {"name", "ts", "dur"}


def _is_event(piece: bytes) -> bool:
    return piece.startswith(b"{") and b'"ph"' in piece and is_valid(piece)
