"""Finds the events in a chunk that is no valid JSON, one by one."""

from __future__ import annotations

import json
import re

import msgspec

from .chunks import NEXT_EVENT
from .mending import is_valid, mend

_LIST_END = re.compile(rb"\}\s*,?\s*(\])\s*(?:,\s*\"|\}\s*\Z|\Z)")
_LOOSE = json.JSONDecoder(strict=False)
_SPACE = b", \t\r\n"
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
            found.footer = piece[1:] + chunk[bounds[index] :]
            return found
        if is_valid(piece):
            found.events.append(piece)
        elif piece:
            last = _difficult(chunk, starts, bounds, index, found)
            if last is None and not final and index >= len(starts) - _MOST_JOINED:
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
    for last in range(index, min(index + _MOST_JOINED, len(starts))):
        if last > index and is_valid(chunk[starts[last] : bounds[last]].strip(_SPACE)):
            return None
        event, footer, mended = _read(chunk[starts[index] : bounds[last]].strip(_SPACE))
        if event is not None:
            found.events.append(event)
            found.num_mended += mended
            if footer is not None:
                found.footer = footer + chunk[bounds[last] :]
            return last
    return None


def _read(piece: bytes) -> tuple[bytes | None, bytes | None, bool]:
    """One event of text that is not valid as a whole.

    Returns:
        The event, valid, if it can be read; what follows the list's end, if the piece goes so
        far; whether the event had to be mended.
    """
    text = piece.decode("utf-8", "replace")
    try:
        stop = _LOOSE.raw_decode(text)[1]
    except (ValueError, RecursionError):
        stop = 0
    rest = text[stop:].strip(", \t\r\n")
    if stop and rest.startswith("]"):
        event = text[:stop].encode()
        if is_valid(event):
            return event, rest[1:].encode(), not piece.startswith(event)
    mended = mend(text)
    if mended is not None:
        return mended.encode(), None, True
    for end in _LIST_END.finditer(piece):
        mended = mend(piece[: end.start() + 1].decode("utf-8", "replace"))
        if mended is not None:
            return mended.encode(), piece[end.end(1) :], True
    return None, None, False
