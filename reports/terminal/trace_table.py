"""Aligned columns that give way to narrow windows."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from .page import Page

GAP = 2
MIN_NAME = 14
"""Names of traces are cut so far, to their ends, before a column is left out."""
DROPPED_FIRST = (
    "tensor", "SM eff.", "ops", "copies", "sync.", "compute", "host's", "host", "busy",
    "communication", "calls", "comm.", "last in", "input", "occup.", "step time",
)  # fmt: skip
"""What a narrow terminal does without, least important first; the page says what it was."""


def add_columns(page: Page, columns: dict[str, list[str]], left: Sequence[str]) -> list[str]:
    """Appends aligned columns, as many as fit, and what has no room; the titles that are shown."""
    every = list(columns)
    for title in DROPPED_FIRST:
        columns = _shorter_names(columns, page.width)
        if _width(columns) <= page.width:
            break
        columns = {key: cells for key, cells in columns.items() if key != title}
    if _width(columns) > page.width and "trace" in columns:
        rest = _width({key: cells for key, cells in columns.items() if key != "trace"})
        room = max(page.width - rest - GAP, 6)
        columns = {**columns, "trace": [_tail(name, room) for name in columns["trace"]]}
    widths = {key: max(map(cell_len, [key, *cells])) for key, cells in columns.items()}
    rows = [list(columns), *zip(*columns.values(), strict=True)]
    for number, row in enumerate(rows):
        text = ""
        for key, cell in zip(columns, row, strict=True):
            space = " " * (widths[key] - cell_len(cell))
            text += " " * GAP + (cell + space if key in left else space + cell)
        page.line(Text(text, style="dim" if number == 0 else ""))
    dropped = [title for title in every if title not in columns]
    if dropped:
        page.entry(f"no room at {page.width} columns for {', '.join(dropped)}.", style="dim")
    return list(columns)


def _shorter_names(columns: dict[str, list[str]], width: int) -> dict[str, list[str]]:
    """The columns with names cut to fit, where that is enough and they stay apart."""
    names = columns.get("trace", [])
    rest = _width({key: cells for key, cells in columns.items() if key != "trace"})
    room = width - rest - GAP
    short = [_tail(name, room) for name in names] if room >= MIN_NAME else names
    return {**columns, "trace": short} if names and len(set(short)) == len(set(names)) else columns


def _tail(text: str, room: int) -> str:
    return text if cell_len(text) <= room else "..." + text[-(room - 3) :]


def _width(columns: dict[str, list[str]]) -> int:
    return sum(max(map(cell_len, [key, *cells])) + GAP for key, cells in columns.items())
