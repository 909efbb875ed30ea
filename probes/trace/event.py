"""One event of a trace as it is decoded, also where valid JSON has unexpected types."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

_NOTHING = msgspec.Raw(b"{}")
_MISSING_TIME = msgspec.Raw(b"null")
_Args = TypeVar("_Args", bound=msgspec.Struct)


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
    id: Any = None


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


def whole_number(value: object) -> int | None:
    """A whole number that 64 bits hold, not below 0; `None` for anything else."""
    plain = isinstance(value, int) and not isinstance(value, bool)
    return int(value) if plain and 0 <= int(value) < 2**63 else None  # type: ignore[call-overload]
