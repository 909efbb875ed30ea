"""Pages of blocks: as text for the terminal that is written to, and as files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ..reports.blocks import Document
from .recording.store import write_output


def terminal_text(
    page: Document,
    *,
    width: int,
    color: bool = False,
    files: Sequence[tuple[str, str]] = (),
    next_command: str = "",
    others: Sequence[str] = (),
) -> str:
    """The page for standard output; see `reports.terminal.document.render`."""
    from ..reports.terminal.document import render

    return render(
        page,
        files=files,
        next_command=next_command,
        others=others,
        width=width,
        color=color,
        encoding=sys.stdout.encoding or "ascii",
    )


def file_text(page: Document, *, markdown: bool) -> str:
    """The page as Markdown, or as HTML."""
    if markdown:
        from ..reports.markdown.document import render as as_markdown

        return as_markdown(page)
    from ..reports.html.document import render as as_html

    return as_html(page)


def write_page(page: Callable[[], Document], data: str, path: Path) -> None:
    """Writes a page whole or not at all; the suffix chooses the format.

    Args:
        page: makes it, for people.
        data: the same as JSON.

    Raises:
        RunError: it cannot be written.
    """
    suffix = path.suffix.lower()
    is_data = suffix == ".json"
    text = data + "\n" if is_data else file_text(page(), markdown=suffix == ".md")
    write_output(path, text)
