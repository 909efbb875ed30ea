"""What all adapters share: a watch, what it found, and whatever is to be undone at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from ...records import Advice, RunRecord
from ..options import Options, checked
from ..watch import Watch

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Unpack

    from ..options import GivenOptions


class Adapter:
    """Base of every callback, beside the framework's own base class.

    Args:
        logdir, options: see `Options`.

    Raises:
        UsageError: an option is wrong.
    """

    def __init__(self, logdir: str | Path | None = None, **options: Unpack[GivenOptions]) -> None:
        super().__init__()
        self._watch = Watch(checked(Options(logdir=logdir, **options)))
        self._undo: list[Callable[[], object]] = []
        """Called at the end of the run, the last one first."""

    @property
    def record(self) -> RunRecord | None:
        """The record of the run; `None` before the end."""
        return self._watch.record

    @property
    def advice(self) -> Advice | None:
        """The advice from that record; `None` before the end."""
        return self._watch.advice

    def __str__(self) -> str:
        return self._watch.text()

    def _repr_html_(self) -> str:
        return self._watch.html()

    def _end(self, error: BaseException | None) -> None:
        """The run is over; once more is once too often and does nothing."""
        while self._undo:
            self._undo.pop()()
        self._watch.end(error)


class AroundLoop(Adapter):
    """An adapter that is a context manager around the loop; what is raised passes through."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end(error)


def local_above(name: str, fits: Callable[[Any], bool]) -> Any:
    """A local variable of the nearest caller that has a fitting one; `None` if none has.

    For frameworks that tell their callbacks neither who calls them nor with what.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        value = frame.f_locals.get(name)
        if value is not None and fits(value):
            return value
        frame = frame.f_back
    return None
