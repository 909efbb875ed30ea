"""A plan over records of several types, as terminal text."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text

from ..report import PlanReport, Table
from .page import Page
from .sections import SEVERITY_STYLES

GAP = 2


def render(
    report: PlanReport,
    *,
    next_command: str,
    width: int,
    color: bool,
    encoding: str = "utf-8",
) -> str:
    """The whole page; further tables and the code to paste are in the files."""
    page = Page(width, encoding)
    page.entry(report.headline, style="bold", indent=0)
    for notice in report.notices:
        page.entry(notice, style="yellow", indent=0)
    for section in report.sections:
        if not section.brief:
            continue
        page.heading(section.title)
        if section.table is not None:
            _table(page, section.table)
        for text in section.texts:
            page.entry(text)
    if report.findings:
        page.heading("Findings")
    for finding in report.findings:
        guess = " (estimate)" if finding.estimate else ""
        page.entry(
            finding.message + guess,
            label=f"{finding.severity}  ",
            label_style=SEVERITY_STYLES[finding.severity],
        )
        for text, label in ((finding.evidence, ""), (finding.remedy, "→ ")):
            if text:
                page.entry(text, label=label, indent=4)
    page.blank()
    page.whole(next_command, label="Next: ", label_style="bold", indent=0)
    return page.render(color=color)


def _table(page: Page, table: Table) -> None:
    """Aligned columns, or a line for each row where they are too wide."""
    titles = [column.title for column in table.columns]
    rows = [titles, *([page.safe(cell) for cell in row.cells] for row in table.rows)]
    widths = [max(cell_len(row[at]) for row in rows) for at in range(len(titles))]
    if sum(widths) + GAP * len(widths) > page.width:
        for name, *cells in rows[1:]:
            known = [
                f"{title} {cell}"
                for title, cell in zip(titles[1:], cells, strict=True)
                if cell != "-"
            ]
            page.entry(", ".join(known), label=f"{name}: ")
        return
    for number, row in enumerate(rows):
        text = ""
        for at, cell in enumerate(row):
            space = " " * (widths[at] - cell_len(cell))
            text += " " * GAP + (cell + space if table.columns[at].left else space + cell)
        page.line(Text(text.rstrip(), style="dim" if number == 0 else ""))
