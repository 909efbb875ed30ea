"""Reads what is left in damaged JSON: mends one event, and finds the events of a chunk one by one.

torch up to 2.13 writes names of Python functions without escaping quotes and backslashes, and
some versions write `NaN`, `Infinity` or bare words as values. An event is a flat object of known
keys with one nested object, `args`; that is enough to tell where a string really ends: at the
quote that is followed by the next key, or by the end of its object or array.
"""

from __future__ import annotations

import bisect
import codecs
import json
import re

import msgspec

from .chunks import NEXT_EVENT
from .kineto_names import EVENT_KEYS

_EVENT_VALUE_END = re.compile(rf'"(?=\s*(?:,\s*"(?:{EVENT_KEYS})"\s*:|\}}\s*$))')
_ARGS_VALUE_END = re.compile(r'"(?=\s*(?:,\s*"[^"\\\n]{1,80}"\s*:|\}))')
_ITEM_END = re.compile(r'"(?=\s*(?:,\s*["\[{\-0-9tfn]|\]))')
_KEY_END = re.compile(r'"(?=\s*:)')
_GOOD_ESCAPE = re.compile(
    r'\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"  # both halves of a pair
)
_CONTROL = {code: f"\\u{code:04x}" for code in range(0x20)}
_PLAIN = re.compile(r'[^"{}\[\]:,]+')
_VALID = msgspec.json.Decoder(msgspec.Raw)
_LITERAL = re.compile(r"(?:true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\Z")
_LIST_END = re.compile(rb"\}\s*(?:,\s*)?(\])\s*(?:,\s*\"|\}\s*\Z|\Z)")
_LOOSE = json.JSONDecoder(strict=False, parse_int=len)  # numbers of any length
_SPACE = b", \t\r\n"
_WINDOW = 1 << 16
"""An event that is not read within so many bytes of its chunk's end waits for the next chunk."""
_DECODER = codecs.getincrementaldecoder("utf-8")  # it takes a character cut by the window


def mend(event: str) -> str | None:
    """The event with its strings escaped and its bare words replaced by `null`.

    Args:
        event: text that begins with `{` and ends with the event's own `}`.

    Returns:
        Valid JSON of an object, or `None` if the event cannot be understood.
    """
    text = _rewrite(event.strip())
    usable = text is not None and text.startswith("{") and is_valid(text.encode())
    return text if usable else None


def is_valid(text: bytes) -> bool:
    """Whether the text is one valid JSON value in UTF-8."""
    try:
        _VALID.decode(text)
        return text.isascii() or bool(text.decode())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _rewrite(text: str) -> str | None:
    parts: list[str] = []
    nesting: list[str] = []
    key_next = False
    position = 0
    while position < len(text):
        mark = text[position]
        if mark == '"':
            pattern = _end_pattern(nesting, key_next=key_next)
            stop = _string_end(text, position, pattern)
            if stop is None:
                return None
            parts.append(f'"{_escape(text[position + 1 : stop])}"')
            position = stop + 1
            continue
        plain = _PLAIN.match(text, position)
        if plain is not None:
            parts.append(_value(plain.group()))
            position = plain.end()
            continue
        if mark in "{[":
            nesting.append(mark)
        elif mark in "}]" and (not nesting or (nesting.pop() == "{") != (mark == "}")):
            return None
        key_next = mark in "{," and bool(nesting) and nesting[-1] == "{"
        parts.append(mark)
        position += 1
    return None if nesting else "".join(parts)


def _end_pattern(nesting: list[str], *, key_next: bool) -> re.Pattern[str]:
    """The pattern of a string's end at this place."""
    if key_next:
        return _KEY_END
    if nesting and nesting[-1] == "[":
        return _ITEM_END
    return _EVENT_VALUE_END if len(nesting) <= 1 else _ARGS_VALUE_END


def _string_end(text: str, start: int, pattern: re.Pattern[str]) -> int | None:
    """Index of the quote that ends the string which begins at `start`."""
    end = pattern.search(text, start + 1)
    while end is not None and _escaped(text, start + 1, end.start()):
        end = pattern.search(text, end.end())
    return None if end is None else end.start()


def _escaped(text: str, start: int, quote: int) -> bool:
    """Whether an odd number of backslashes stands before the quote."""
    first = quote
    while first > start and text[first - 1] == "\\":
        first -= 1
    return (quote - first) % 2 == 1


def _escape(inner: str) -> str:
    """A string's text with all escaped that must be.

    A string that holds a bare quote or a false escape was written without escaping; then all its
    backslashes are meant as such.
    """
    plain = _GOOD_ESCAPE.sub("", inner)
    if '"' in plain or "\\" in plain:
        inner = inner.replace("\\", "\\\\").replace('"', '\\"')
    return inner.translate(_CONTROL)


def _value(plain: str) -> str:
    """A literal as it is, any other bare word as `null`, white space kept."""
    word = plain.strip()
    return plain if not word or _LITERAL.match(word) else plain.replace(word, "null")


class ReadableEvents(msgspec.Struct, kw_only=True):
    """The readable events of a chunk.

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


def find_events(chunk: bytes, *, final: bool) -> ReadableEvents:
    """Finds what can be read, mended if need be.

    Args:
        chunk: events separated by commas, without the list's brackets; the last chunk of a file
            goes on with the list's end and the rest of the document.
        final: whether nothing follows the chunk, so that nothing may be left.
    """
    walk = _Walk(chunk)
    walk.run(final=final)
    return walk.readable


class _Walk:
    """Goes through a chunk, from one thing that looks like an event to the next."""

    def __init__(self, chunk: bytes) -> None:
        self.chunk = chunk
        self.starts = [0, *(match.end() for match in NEXT_EVENT.finditer(chunk))]
        self.bounds = [*self.starts[1:], len(chunk)]
        self.readable = ReadableEvents()

    def run(self, *, final: bool) -> None:
        result, index = self.readable, 0
        while index < len(self.starts) and result.footer is None:
            start = self.starts[index]
            piece = self.piece(index)
            if piece.startswith(b"{") and is_valid(piece):
                result.events.append(piece)
            elif piece.startswith(b"]"):
                result.footer = self.chunk[self.chunk.index(b"]", start) + 1 :]
            elif piece:
                last = self.nested(index)
                if last is None and self.mended(index):
                    last = index
                if last is None and not final and len(self.chunk) - start < _WINDOW:
                    result.left = self.chunk[start:]
                    return
                result.num_lost += last is None
                index = index if last is None else last
            index += 1

    def piece(self, index: int) -> bytes:
        return self.chunk[self.starts[index] : self.bounds[index]].strip(_SPACE)

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
        self.readable.events.append(event)
        if ends_list:
            self.readable.footer = self.chunk[self.chunk.index(b"]", stop) + 1 :]
        return max(bisect.bisect_left(self.starts, stop) - 1, index)

    def mended(self, index: int) -> bool:
        """Mends the text of an event, with the end of the list after it or without."""
        piece = self.piece(index)
        texts: list[tuple[bytes, bytes | None]] = [(piece, None)]
        texts += [(piece[: m.start() + 1], piece[m.end(1) :]) for m in _LIST_END.finditer(piece)]
        for text, footer in texts:
            plain = text.decode("utf-8", "replace")
            event = plain if _is_event(plain.encode()) else mend(plain)
            if event is not None:
                self.readable.events.append(event.encode())
                self.readable.num_mended += 1
                if footer is not None:
                    self.readable.footer = footer + self.chunk[self.bounds[index] :]
                return True
        return False


def _is_event(piece: bytes) -> bool:
    return piece.startswith(b"{") and b'"ph"' in piece and is_valid(piece)
