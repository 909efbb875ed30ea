"""A snapshot of the memory, as terminal text."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text

from ...reports.report import MemoryReport, Table
from ...reports.terminal.page import Page
from ...reports.terminal.sections import SEVERITY_STYLES, pairs_of

GAP = 2
SHORT = 3
"""Rows of a table that are shown unless all are wanted."""


def render(
    report: MemoryReport,
    *,
    whole: bool,
    next_command: str,
    width: int,
    color: bool,
    encoding: str = "utf-8",
) -> str:
    """The whole page.

    Args:
        whole: whether tables are shown with all their rows, and the least important ones too.
        next_command: what to type next; may be empty.
        width: columns of the terminal.
        color: whether ANSI codes may be used.
        encoding: of the output; characters that it lacks are replaced.
    """
    page = Page(width, encoding)
    page.entry(report.headline, style="bold", indent=0)
    for finding in report.findings:
        page.entry(
            finding.message,
            label=f"{finding.severity}  ",
            label_style=SEVERITY_STYLES[finding.severity],
        )
        page.entry(finding.evidence, style="dim", indent=4)
        page.entry(finding.remedy, label="→ ", indent=4)
    for device in report.devices:
        page.heading(device.name)
        page.pairs(pairs_of(device.facts))
        for table in device.tables if whole else device.tables[:4]:
            page.heading(f"{device.name}: {table.title[0].lower()}{table.title[1:]}")
            _table(page, table, len(table.rows) if whole else SHORT)
    page.blank()
    for notice in report.notices:
        page.entry(notice, style="yellow", indent=0)
    if next_command:
        page.blank()
        page.whole(next_command, label="Next: ", label_style="bold", indent=0)
    return page.render(color=color)


def _table(page: Page, table: Table, limit: int) -> None:
    """Aligned columns; the last, left one is cut at the window's edge."""
    titles = [column.title for column in table.columns]
    rows = [titles, *([page.safe(cell) for cell in row.cells] for row in table.rows[:limit])]
    widths = [max(cell_len(row[at]) for row in rows) for at in range(len(titles))]
    for number, row in enumerate(rows):
        text = ""
        for at, cell in enumerate(row):
            space = " " * (widths[at] - cell_len(cell))
            text += " " * GAP + (cell + space if table.columns[at].left else space + cell)
        text = text.rstrip()
        if cell_len(text) > page.width:
            text = text[: page.width - 3].rstrip() + "..."
        page.line(Text(text, style="dim" if number == 0 else ""))
    if len(table.rows) > limit:
        page.entry(f"and {len(table.rows) - limit} more (--all)", style="dim")
