"""Several devices side by side, as terminal text."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ..report import SplitSection, Table
from ..text import DevicesText
from .page import Page


def render(
    text: DevicesText,
    *,
    folder: str,
    width: int,
    color: bool,
    encoding: str = "utf-8",
    then: Sequence[str] = (),
) -> str:
    """A row a device, what the twins showed, where the whole answers are.

    Args:
        folder: of the run.
        then: commands that come next, such as those that go on with what was interrupted; without
            any, the first device's answer is named.
    """
    page = Page(width, encoding)
    page.entry(text.headline, style="bold green" if text.good else "bold red", indent=0)
    if text.unfinished:
        page.entry(f"The run {text.unfinished}; what was measured is below.", indent=0)
    page.heading("Devices")
    rows = [
        tuple(column.title for column in text.table.columns),
        *(row.cells for row in text.table.rows),
    ]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(wide) for cell, wide in zip(row, widths, strict=True)]
        page.entry("  ".join(cells).rstrip())
    if text.together:
        page.entry(text.together)
    if text.split is not None:
        add_split(page, text.split, text.split_texts, folder)
    if text.notes:
        page.heading("Findings")
        for line in text.notes:
            page.entry(line)
    page.blank()
    page.whole(folder, label="Wrote ", indent=0)
    for number, command in enumerate(then):
        page.whole(command, label="  or  " if number else "Next: ", indent=0)
    if text.first_folder is not None and not then:
        command = f"batchadvisor advise {shlex.quote(f'{folder}/{text.first_folder}')}"
        page.whole(command, label="Next: ", indent=0)
    return page.render(color=color)


# A split plan on a page of the terminal.


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
