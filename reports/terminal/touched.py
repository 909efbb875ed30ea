"""What the script itself did to files, where nothing else is shown."""

from __future__ import annotations

from collections.abc import Sequence

from ...records import FileTouched
from .page import Page
from .sections import add_touched

WIDTH = 100
"""Columns of what is no path."""


def render(files: Sequence[FileTouched], *, encoding: str = "utf-8") -> str:
    """The files with their headings; empty without any.

    Args:
        encoding: of the output; characters that it lacks are replaced.
    """
    if not files:
        return ""
    page = Page(WIDTH, encoding)
    add_touched(page, files)
    return page.render(color=False).rstrip("\n")
