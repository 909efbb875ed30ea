"""A split plan on a page of the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ..report import SplitSection, Table
from .page import Page


def add_split(page: Page, split: SplitSection, texts: Sequence[str], folder: str) -> None:
    """Appends the plan, or why there is none.

    Args:
        texts: its sentences.
        folder: of the run.
    """
    page.heading("Split plan")
    if split.shares is not None:
        _columns(page, split.shares)
    for text in texts:
        page.entry(text)
    if split.options is None:
        return
    page.blank()
    _columns(page, split.options)
    page.blank()
    command = f"batchadvisor report {shlex.quote(folder)}"
    page.whole(command, label="Sampler and loss weight to paste: ")


def _columns(page: Page, table: Table) -> None:
    """A table, or a line for each row where it is too wide."""
    titles = tuple(column.title for column in table.columns)
    rows = [titles, *(row.cells for row in table.rows)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(titles))]
    if 2 + sum(widths) + 2 * (len(widths) - 1) > page.width:
        for name, *cells in rows[1:]:
            known = [pair for pair in zip(titles[1:], cells, strict=True) if pair[1] != "-"]
            page.entry(", ".join(f"{title} {cell}" for title, cell in known), label=f"{name}: ")
        return
    for row in rows:
        cells = [cell.ljust(wide) for cell, wide in zip(row, widths, strict=True)]
        page.entry("  ".join(cells).rstrip())
