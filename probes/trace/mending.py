"""Makes one damaged event valid JSON again.

torch up to 2.13 writes names of Python functions without escaping quotes and backslashes, and
some versions write `NaN`, `Infinity` or bare words as values. An event is a flat object of known
keys with one nested object, `args`; that is enough to tell where a string really ends: at the
quote that is followed by the next key, or by the end of its object or array.
"""

from __future__ import annotations

import re

import msgspec

EVENT_KEYS = "ph|cat|name|pid|tid|ts|dur|args|id|bp|s|tts|tdur|cname|sf|stack|scope|id2"

_EVENT_VALUE_END = re.compile(rf'"(?=\s*(?:,\s*"(?:{EVENT_KEYS})"\s*:|\}}\s*$))')
_ARGS_VALUE_END = re.compile(r'"(?=\s*(?:,\s*"[^"\\\n]{1,80}"\s*:|\}))')
_ITEM_END = re.compile(r'"(?=\s*(?:,\s*["\[{\-0-9tfn]|\]))')
_KEY_END = re.compile(r'"(?=\s*:)')
_GOOD_ESCAPE = re.compile(
    r'\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"  # both halves of a pair
)
_CONTROL = re.compile(r"[\x00-\x1f]")
_PLAIN = re.compile(r'[^"{}\[\]:,]+')
_VALID = msgspec.json.Decoder(msgspec.Raw)
_LITERAL = re.compile(r"(?:true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\Z")


def mend(event: str, *, any_keys: bool = False) -> str | None:
    """The event with its strings escaped and its bare words replaced by `null`.

    Args:
        event: text that begins with `{` and ends with the event's own `}`.
        any_keys: the object is no event and may have any keys.

    Returns:
        Valid JSON of an object, or `None` if the event cannot be understood.
    """
    text = _rewrite(event.strip(), 0 if any_keys else 1)
    usable = text is not None and text.startswith("{") and is_valid(text.encode())
    return text if usable else None


def is_valid(text: bytes) -> bool:
    """Whether the text is one valid JSON value in UTF-8."""
    try:
        _VALID.decode(text)
        return text.isascii() or bool(text.decode())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _rewrite(text: str, event_depth: int) -> str | None:
    parts: list[str] = []
    nesting: list[str] = []
    key_next = False
    position = 0
    while position < len(text):
        mark = text[position]
        if mark == '"':
            pattern = _end_pattern(nesting, event_depth, key_next=key_next)
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


def _end_pattern(nesting: list[str], event_depth: int, *, key_next: bool) -> re.Pattern[str]:
    """What the end of a string looks like at this place."""
    if key_next:
        return _KEY_END
    if nesting and nesting[-1] == "[":
        return _ITEM_END
    return _EVENT_VALUE_END if len(nesting) <= event_depth else _ARGS_VALUE_END


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
    return _CONTROL.sub(lambda found: f"\\u{ord(found.group()):04x}", inner)


def _value(plain: str) -> str:
    """A literal as it is, any other bare word as `null`, white space kept."""
    word = plain.strip()
    return plain if not word or _LITERAL.match(word) else plain.replace(word, "null")
