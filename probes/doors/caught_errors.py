"""Exceptions that a loop swallows: batches go in, no optimizer steps, and the script is silent.

While it looks on, the interpreter tells of every exception that passes a frame of the script, so
that one which the loop catches and forgets can still be named.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from ..process.faults import is_out_of_memory
from ..source.call_site import is_users

_EXPECTED = (StopIteration, StopAsyncIteration, GeneratorExit)


class CaughtErrors:
    """Notes the exceptions that the script's own frames see.

    Slow, therefore only switched on when something is wrong anyway.

    Attributes:
        seen: type and first line of the last exception; empty so far.
        out_of_memory: whether memory was refused by it.
    """

    def __init__(self) -> None:
        # Words only: the exception itself would keep the tensors of the failed step alive.
        self.seen = ""
        self.out_of_memory = False
        self._on = False

    def look(self) -> None:
        """Starts; frames that already run are looked at too. Does nothing under a debugger."""
        if self._on or sys.gettrace() is not None:
            return
        self._on = True
        sys.settrace(self._enter)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if is_users(frame.f_code.co_filename):
                frame.f_trace = self._inside
                frame.f_trace_lines = False
            frame = frame.f_back

    def stop(self) -> None:
        """Ends it; `seen` stays."""
        if self._on:
            sys.settrace(None)
            self._on = False

    def _enter(self, frame: FrameType, _event: str, _value: Any) -> Callable[..., Any] | None:
        name = frame.f_code.co_filename
        if not is_users(name):
            return None
        frame.f_trace_lines = False
        return self._inside

    def _inside(self, _frame: FrameType, event: str, value: Any) -> Callable[..., Any]:
        if event == "exception" and not issubclass(value[0], _EXPECTED):
            error = value[1] if isinstance(value[1], BaseException) else value[0](value[1])
            first = str(error).strip().splitlines()
            self.seen = f"{type(error).__name__}: {first[0]}" if first else type(error).__name__
            self.out_of_memory = is_out_of_memory(error)
        return self._inside
