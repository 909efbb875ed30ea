"""Finds the events in a chunk that is no valid JSON, one by one."""

from __future__ import annotations

import bisect
import json
import re

import msgspec

from .chunks import NEXT_EVENT
from .mending import is_valid, mend

_LIST_END = re.compile(rb"\}\s*,?\s*(\])\s*(?:,\s*\"|\}\s*\Z|\Z)")
_LOOSE = json.JSONDecoder(strict=False)
_SPACE = b", \t\r\n"
_WINDOW = 1 << 16
"""An event that is not read within so many bytes of its chunk's end waits for the next chunk."""
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
    found = Found()
    starts = [0, *(match.end() for match in NEXT_EVENT.finditer(chunk))]
    bounds = [*starts[1:], len(chunk)]
    index = 0
    while index < len(starts):
        piece = chunk[starts[index] : bounds[index]].strip(_SPACE)
        if piece.startswith(b"]"):
            found.footer = chunk[chunk.index(b"]", starts[index]) + 1 :]
            return found
        if piece.startswith(b"{") and is_valid(piece):
            found.events.append(piece)
        elif piece:
            last = _difficult(chunk, starts, bounds, index, found)
            if last is None and not final and len(chunk) - starts[index] < _WINDOW:
                found.left = chunk[starts[index] :]
                return found
            found.num_lost += last is None
            if found.footer is not None:
                return found
            index = index if last is None else last
        index += 1
    return found


def _difficult(
    chunk: bytes, starts: list[int], bounds: list[int], index: int, found: Found
) -> int | None:
    """Reads the piece at `index`, joined with the next ones if need be.

    Returns:
        Index of the last piece used, `None` if the piece cannot be read.
    """
    text = chunk[starts[index] : starts[index] + _WINDOW]
    begin = starts[index] + len(text) - len(text.lstrip(_SPACE))
    whole = _parse(text.lstrip(_SPACE))
    if whole is not None:  # arguments that hold what looks like events
        event, rest = whole
        stop = begin + len(event)
        if not rest.startswith(b"]"):
            found.events.append(event)
            return max(bisect.bisect_left(starts, stop) - 1, index)
        found.events.append(event)
        found.footer = chunk[chunk.index(b"]", stop) + 1 :]
        return index
    for last in range(index, min(index + _MOST_JOINED, len(starts))):
        if last > index and _is_event(chunk[starts[last] : bounds[last]].strip(_SPACE)):
            return None
        mended, footer = _mend(chunk[starts[index] : bounds[last]].strip(_SPACE))
        if mended is not None:
            found.events.append(mended)
            found.num_mended += 1
            if footer is not None:
                found.footer = footer + chunk[bounds[last] :]
            return last
    return None


def _is_event(piece: bytes) -> bool:
    return b'"ph"' in piece and is_valid(piece)


def _parse(text: bytes) -> tuple[bytes, bytes] | None:
    """The valid object at the start of the text, and what follows it: the next event or the end.

    `None` if there is no such object.
    """
    try:
        plain = text.decode("utf-8")
        stop = _LOOSE.raw_decode(plain)[1]
    except (ValueError, RecursionError):
        return None
    event, rest = plain[:stop].encode(), plain[stop:].lstrip(" \t\r\n")
    ends = not rest or NEXT_EVENT.match(rest.encode()) or rest.lstrip(", \t\r\n").startswith("]")
    if not ends or not is_valid(event):
        return None
    return event, rest.lstrip(", \t\r\n").encode()


def _mend(piece: bytes) -> tuple[bytes | None, bytes | None]:
    """The event, mended, and what follows the list's end if the piece goes so far."""
    mended = mend(piece.decode("utf-8", "replace"))
    if mended is not None:
        return mended.encode(), None
    for end in _LIST_END.finditer(piece):
        mended = mend(piece[: end.start() + 1].decode("utf-8", "replace"))
        if mended is not None:
            return mended.encode(), piece[end.end(1) :]
    return None, None
