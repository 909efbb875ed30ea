"""What was tried, as terminal text."""

from __future__ import annotations

from ...reports.report import Table
from ...reports.terminal.page import Page
from ...reports.terminal.sections import add_tables
from .records import Remedies
from .words import headline, message_of, to_write, where_of


def render(
    remedies: Remedies,
    table: Table,
    *,
    next_command: str,
    diff: str = "",
    width: int,
    color: bool,
    encoding: str = "utf-8",
) -> str:
    """The table, then the code of what gained.

    Args:
        table: of what was tried.
        next_command: what to type next; may be empty.
        diff: path of what is to be written, as a diff.
        width: columns of the terminal.
        color: whether ANSI codes may be used.
        encoding: of the output; characters that it lacks are replaced.
    """
    page = Page(width, encoding)
    page.entry(f"{headline(remedies)}.", label="Remedies: ", style="bold", indent=0)
    add_tables(page, (table,))
    for tried in to_write(remedies):
        page.blank()
        page.entry(message_of(tried, confirmed=tried is remedies.together), indent=0)
        page.entry(where_of(tried), label="→ ")
        for line in tried.code:
            page.whole(line, indent=4)
        if tried.diff and diff:
            page.whole(f"git apply {diff}", label="→ as a diff, at the root of the repository: ")
        elif tried.no_diff:
            page.entry(f"as a diff: none, for {tried.no_diff}", label="→ ")
    if next_command:
        page.blank()
        page.whole(next_command, label="Next: ", label_style="bold", indent=0)
    return page.render(color=color)
