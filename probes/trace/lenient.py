"""Decodes what is valid JSON and has unexpected types: it keeps what makes sense."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from .event import Event

_Args = TypeVar("_Args", bound=msgspec.Struct)
_NUMBERS_AS_TEXT = json.JSONDecoder(strict=False, parse_float=str)


def lenient_args(text: bytes, kind: type[_Args]) -> _Args:
    """Those of the arguments that make sense; the others keep their defaults."""
    try:
        args = json.loads(text)
    except (ValueError, RecursionError):
        return kind()
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if isinstance(args, dict) and field.encode_name in args:
            try:
                value = msgspec.convert(args[field.encode_name], field.type, strict=False)
            except (msgspec.ValidationError, OverflowError, ValueError):
                continue
            found[field.name] = value
    return kind(**found)


def lenient_event(text: bytes) -> Event:
    """An event from whatever the text holds; what has the wrong type is left out."""
    try:
        found = _NUMBERS_AS_TEXT.decode(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return Event()
    args = found.get("args")
    try:
        raw_args = msgspec.json.encode(args) if isinstance(args, dict) else b"{}"
    except (TypeError, ValueError, OverflowError, RecursionError):
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


def whole_number(value: object) -> int | None:
    """A whole number that 64 bits hold, not below 0; `None` for anything else."""
    plain = isinstance(value, int) and not isinstance(value, bool)
    return int(value) if plain and 0 <= int(value) < 2**63 else None  # type: ignore[call-overload]


def _text(value: object) -> str:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _identifier(value: object) -> int | str | None:
    return value if isinstance(value, int) else _text(value) if isinstance(value, str) else None


def _number(value: object) -> msgspec.Raw:
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else "null"
    return msgspec.Raw(text.encode("ascii", "replace") if 0 < len(text) < 40 else b"null")
