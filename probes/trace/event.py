"""One event of a trace as it is decoded."""

from __future__ import annotations

from typing import Any

import msgspec

_NOTHING = msgspec.Raw(b"{}")
_MISSING_TIME = msgspec.Raw(b"null")


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
