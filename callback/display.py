"""Where the callback's words go: the terminal, or a cell of a notebook."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

_SEVERITY, _NONE = "KINETO_LOG_LEVEL", "6"


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel, which shows HTML.

    A process that a launcher forked off it has the kernel's objects and cannot speak through them.
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    kernel = getattr(shell, "kernel", None)
    session = getattr(kernel, "session", None)
    return kernel is not None and getattr(session, "pid", os.getpid()) == os.getpid()


@contextlib.contextmanager
def only_our_lines(*, here: bool) -> Iterator[None]:
    """While torch's profiler starts for the first time: its library's lines stay away.

    They come from C++, and in a notebook they stand between ours. Its severity is read once.

    Args:
        here: in a notebook; a terminal may show them.
    """
    if not here or _SEVERITY in os.environ:
        yield
        return
    os.environ[_SEVERITY] = _NONE
    try:
        yield
    finally:
        del os.environ[_SEVERITY]


class Cell:
    """One output of a notebook's cell that is replaced as the run goes on."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, html: str) -> None:
        """Shows a page's part in the place of the one before."""
        from importlib import import_module

        ipython: Any = import_module("IPython.display")
        shown = ipython.HTML(html)
        if self._handle is None:
            self._handle = ipython.display(shown, display_id=True)
        else:
            self._handle.update(shown)


def say(text: str) -> None:
    """Words for the user, on stderr: what the script prints stays as it is."""
    stream = sys.stderr
    try:
        stream.write(text if text.endswith("\n") else text + "\n")
        stream.flush()
    except (OSError, ValueError, AttributeError):
        return  # a closed terminal does not end a training


def terminal() -> tuple[int, bool, str]:
    """Columns of stderr, whether colours make sense there, and its encoding."""
    import shutil

    stream = sys.stderr
    shown = bool(getattr(stream, "isatty", lambda: False)())
    width = shutil.get_terminal_size((100, 24)).columns
    encoding = getattr(stream, "encoding", None) or "ascii"
    return width, shown and not os.environ.get("NO_COLOR"), encoding
