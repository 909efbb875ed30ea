"""Several devices side by side, as terminal text."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ..text import DevicesText
from .page import Page
from .split import add_split


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
