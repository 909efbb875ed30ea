"""The short text at the end of a training that a callback watched."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from ..text import WatchedText
from .page import Page


def render(
    text: WatchedText,
    *,
    files: Sequence[tuple[str, str]],
    next_command: str,
    width: int,
    color: bool,
    encoding: str = "utf-8",
) -> str:
    """The text.

    Args:
        files: label and path of what was written.
        next_command: what to type next.
        width: columns of the terminal.
        color: whether ANSI codes may be used.
        encoding: of the output; characters that it lacks are replaced.
    """
    page = Page(width, encoding)
    page.entry(text.headline, style="bold", indent=0)
    page.pairs(text.seen)
    for problem in text.problems:
        style = "bold red" if problem.severity == "error" else "yellow"
        page.entry(problem.message, label=problem.severity.ljust(9), label_style=style)
        if problem.remedy:
            page.entry(problem.remedy, label="→ ", indent=11)
        for line in problem.code:  # as it is, to be pasted
            page.line(Text(" " * 13 + page.safe(line)))
    for label, path in files:
        page.whole(path, label=f"Wrote {label.ljust(6)}  ", label_style="dim", indent=0)
    if next_command:
        page.whole(next_command, label="Next: ", label_style="bold", indent=0)
    return page.render(color=color)
