"""One event of a trace as it is decoded, also where valid JSON has unexpected types."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

_NOTHING = msgspec.Raw(b"{}")
_MISSING_TIME = msgspec.Raw(b"null")
_Args = TypeVar("_Args", bound=msgspec.Struct)
_NUMBERS_AS_TEXT = json.JSONDecoder(strict=False, parse_float=str)


class Event(msgspec.Struct, gc=False):
    """One event; numbers and arguments stay text until it is known that they matter."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = _MISSING_TIME
    dur: msgspec.Raw = _MISSING_TIME
    args: msgspec.Raw = _NOTHING


def lenient_args(text: bytes, kind: type[_Args]) -> _Args:
    """Those of the arguments that make sense; the others keep their defaults."""
    try:
        args = json.loads(text)
    except (ValueError, RecursionError):
        return kind()
    readable: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if isinstance(args, dict) and field.encode_name in args:
            try:
                value = msgspec.convert(args[field.encode_name], field.type, strict=False)
            except (msgspec.ValidationError, OverflowError, ValueError):
                continue
            readable[field.name] = value
    return kind(**readable)


def lenient_event(text: bytes) -> Event:
    """An event from whatever the text holds; what has the wrong type is left out."""
    try:
        fields = _NUMBERS_AS_TEXT.decode(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        return Event()
    args = fields.get("args")
    try:
        raw_args = msgspec.json.encode(args) if isinstance(args, dict) else b"{}"
    except (TypeError, ValueError, OverflowError, RecursionError):
        raw_args = b"{}"
    return Event(
        ph=_text(fields.get("ph")),
        cat=_text(fields.get("cat")),
        name=_text(fields.get("name")),
        pid=_identifier(fields.get("pid")),
        tid=_identifier(fields.get("tid")),
        ts=_number(fields.get("ts")),
        dur=_number(fields.get("dur")),
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
