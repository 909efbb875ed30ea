"""Reads a chunk of events that is no valid JSON, event by event."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from .builder import Event
from .mending import EVENT_KEYS, mend

NEXT_EVENT = re.compile(rb',\s*(?=\{\s*"(?:' + EVENT_KEYS.encode() + rb')"\s*:)')
"""The comma before something that looks like an event; inside of strings it may mislead."""

_LIST_END = re.compile(rb"\}\s*,?\s*(\])\s*(?:,\s*\"|\}\s*\Z|\Z)")
_LOOSE = json.JSONDecoder(strict=False, parse_float=str)
_MOST_JOINED = 4
"""So many pieces are tried as one event when a string looks like the start of an event."""

_decoder = msgspec.json.Decoder(Event)


class Recovered(msgspec.Struct, kw_only=True):
    """What a chunk gave.

    Attributes:
        events: readable ones.
        num_lost, num_mended: the others, and those that needed help.
        footer: what follows the list of events; `None` while the list goes on.
        left: an unreadable end, to be tried again together with what follows it.
    """

    events: list[Event] = msgspec.field(default_factory=list)
    num_lost: int = 0
    num_mended: int = 0
    footer: bytes | None = None
    left: bytes = b""


def recover(chunk: bytes, *, final: bool) -> Recovered:
    """Reads what can be read.

    Args:
        chunk: events separated by commas, without the list's brackets; the last chunk of a file
            goes on with the list's end and the rest of the document.
        final: whether nothing follows the chunk.
    """
    result = Recovered()
    starts = [0, *(match.end() for match in NEXT_EVENT.finditer(chunk))]
    bounds = [*starts[1:], len(chunk)]
    index = 0
    while index < len(starts):
        piece = chunk[starts[index] : bounds[index]].strip(b", \t\r\n")
        event = _strict(piece) if piece else None
        if event is not None:
            result.events.append(event)
        elif piece.startswith(b"]"):
            result.footer = piece[1:] + chunk[bounds[index] :]
            return result
        elif piece:
            index = _difficult(chunk, starts, bounds, index, result, final=final)
            if result.footer is not None or result.left:
                return result
        index += 1
    return result


def _difficult(
    chunk: bytes,
    starts: list[int],
    bounds: list[int],
    index: int,
    result: Recovered,
    *,
    final: bool,
) -> int:
    """Reads the piece at `index`, joined with the next ones if need be; returns the last used."""
    for last in range(index, min(index + _MOST_JOINED, len(starts))):
        if last > index and _strict(chunk[starts[last] : bounds[last]].strip(b", \t\r\n")):
            break
        piece = chunk[starts[index] : bounds[last]].strip(b", \t\r\n")
        event, rest, mended = read_piece(piece)
        if event is None:
            continue
        result.events.append(event)
        result.num_mended += mended
        if rest is not None:
            result.footer = rest + chunk[bounds[last] :]
        return last
    if not final and index >= len(starts) - _MOST_JOINED:
        result.left = chunk[starts[index] :]
    else:
        result.num_lost += 1
    return index


def read_piece(piece: bytes) -> tuple[Event | None, bytes | None, bool]:
    """One event that the strict decoder refuses.

    Returns:
        The event if it can be read; what follows the list's end, if it is in the piece; whether
        the event was no valid JSON.
    """
    text = piece.decode("utf-8", "replace")
    try:
        found, stop = _LOOSE.raw_decode(text)
    except (ValueError, RecursionError):
        found, stop = None, 0
    if isinstance(found, dict):
        rest = text[stop:].strip(", \t\r\n")
        if not rest:
            return _event(found), None, not _valid(piece)
        if rest.startswith("]"):
            return _event(found), rest[1:].encode(), False
    mended = mend(text)
    if mended is not None:
        return _event(_LOOSE.decode(mended)), None, True
    for end in _LIST_END.finditer(piece):
        mended = mend(piece[: end.start() + 1].decode("utf-8", "replace"))
        if mended is not None:
            return _event(_LOOSE.decode(mended)), piece[end.end(1) :], True
    return None, None, False


def _strict(piece: bytes) -> Event | None:
    try:
        return _decoder.decode(piece)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _valid(piece: bytes) -> bool:
    """Whether the text is valid JSON, only not of the usual types."""
    try:
        msgspec.json.decode(piece, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _event(found: dict[str, Any]) -> Event:
    """An event from whatever its object holds; what has the wrong type is left out."""
    args = found.get("args")
    try:
        raw_args = msgspec.json.encode(args) if isinstance(args, dict) else b"{}"
    except (TypeError, ValueError, OverflowError, RecursionError, UnicodeEncodeError):
        raw_args = b"{}"
    return Event(
        ph=_text(found.get("ph")),
        cat=_text(found.get("cat")),
        name=_text(found.get("name")),
        pid=_identifier(found.get("pid")),
        tid=_identifier(found.get("tid")),
        ts=_number(found.get("ts")),
        dur=_number(found.get("dur")),
        args=msgspec.Raw(raw_args),
    )


def _text(value: object) -> str:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _identifier(value: object) -> int | str | None:
    return value if isinstance(value, int) else _text(value) if isinstance(value, str) else None


def _number(value: object) -> msgspec.Raw:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return msgspec.Raw(b"null")
    text = str(value)
    return msgspec.Raw(text.encode("ascii", "replace") if len(text) < 40 else b"null")
