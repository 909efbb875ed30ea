"""Tables as terminal text: aligned columns that give way to narrow windows."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from ..blocks import Grid
from ..report import Row
from .page import MIN_BODY, Page

GAP = 2
"""Columns between two cells of a row."""
SHORT_END, LEAST_END = 14, 6
"""Cells are cut to so much of their ends before a column goes, and when no other can."""
LEAST_CUT = 28
"""What a text that is cut needs before columns go for it."""
MOST_NAME = 30
"""Where to wrap names that share a row."""
UNKNOWN = "-"
ROW_STYLES = {"ok": "", "doubtful": "yellow", "failed": "red"}


@dataclass(slots=True, eq=False)
class _Column:
    title: str
    cells: list[str]
    left: bool

    @property
    def width(self) -> int:
        return max(map(cell_len, [self.title, *self.cells]))

    def text(self, line: int) -> str:
        """The title on line 0, then the cells."""
        return self.cells[line - 1] if line else self.title


def add_grid(page: Page, grid: Grid, *, indent: int = 2) -> None:
    """Appends a table and its notes.

    Where it is too wide, columns go; else the last one is wrapped or cut; else each row becomes a
    sentence.
    """
    table = grid.table
    rows = table.rows if grid.most_rows is None else table.rows[: grid.most_rows]
    every = [
        _Column(
            f"{column.title} {column.unit}".rstrip(),
            [page.safe(row.cells[at]) for row in rows],
            column.left,
        )
        for at, column in enumerate(table.columns)
    ]
    width = page.width - indent
    of_lines = _wrap_names(every, rows, grid, width)
    shown = _fitting(every, grid, width) if rows else every
    if not rows or _stand_in_line(shown, width):
        _add(page, shown, of_lines, grid, indent)
    else:
        shown = every
        _add_sentences(page, every, rows, indent)
    dropped = [column.title for column in every if column not in shown]
    legend = grid.legend_of([column.title for column in shown])
    if legend:
        page.entry(legend, style="dim", indent=indent)
    if dropped:
        titles = ", ".join(dropped).rstrip(".")
        page.entry(f"no room at {page.width} columns for {titles}.", style="dim", indent=indent)
    if len(rows) < len(table.rows):
        more = f" ({grid.more})" if grid.more else ""
        page.entry(f"and {len(table.rows) - len(rows)} more{more}", style="dim", indent=indent)
    for note in table.notes:
        page.entry(note, style="dim", indent=indent)


def _fitting(columns: list[_Column], grid: Grid, width: int) -> list[_Column]:
    """The columns that fit, as far as columns may go."""
    for title in (None, *grid.dropped_first):
        columns = [column for column in columns if column.title != title]
        _cut_to_ends(columns, grid.ends, width)
        if _stand_in_line(columns, width, LEAST_CUT if grid.cut else MIN_BODY):
            return columns
    _cut_to_ends(columns, grid.ends, width, anyhow=True)
    return columns


def _cut_to_ends(columns: list[_Column], title: str, width: int, *, anyhow: bool = False) -> None:
    """Cuts the cells of a column so far as there is no room, if they still tell rows apart."""
    for column in columns:
        if column.title == title:
            room = width - (_width(columns) - column.width)
            short = [_end(cell, max(room, LEAST_END)) for cell in column.cells]
            apart = len(set(short)) == len(set(column.cells))
            if anyhow or (room >= SHORT_END and apart):
                column.cells = short


def _end(text: str, room: int) -> str:
    return text if cell_len(text) <= room else "..." + text[-(room - 3) :]


def _wrap_names(columns: list[_Column], rows: Sequence[Row], grid: Grid, width: int) -> list[Row]:
    """The row of each line: long names in the first column take several, where that helps."""
    names = columns[0]
    kept = [column for column in columns if column.title not in grid.dropped_first]
    least = _width(kept) - names.width + MOST_NAME
    alone = names.left and names.width > MOST_NAME and names.title != grid.ends
    if not alone or _width(columns) <= width or least > width:
        return list(rows)
    lines = [textwrap.wrap(cell, MOST_NAME) or [""] for cell in names.cells]
    for column in columns[1:]:
        cells = zip(column.cells, lines, strict=True)
        column.cells = [each for cell, own in cells for each in (cell, *[""] * (len(own) - 1))]
    names.cells = [line for own in lines for line in own]
    return [row for row, own in zip(rows, lines, strict=True) for _ in own]


def _width(columns: list[_Column]) -> int:
    return sum(column.width for column in columns) + GAP * (len(columns) - 1)


def _stand_in_line(columns: list[_Column], width: int, least: int = MIN_BODY) -> bool:
    """Whether they fit, the last one with some of its text at least."""
    last = columns[-1]
    room = width - _width(columns) + last.width
    longest = max(map(cell_len, last.cells))
    return room >= last.width or (last.left and room >= min(least, longest))


def _add(page: Page, columns: list[_Column], rows: Sequence[Row], grid: Grid, indent: int) -> None:
    *others, last = columns
    room = page.width - indent - _width(columns) + last.width
    for at, row in enumerate([None, *rows] if rows else []):
        style = "dim" if row is None else _style(row)
        label = "".join(_cell(column, at) + " " * GAP for column in others)
        text = last.text(at) if last.left else _cell(last, at)
        if grid.cut and cell_len(text) > room:
            text = text[: room - 3].rstrip() + "..."
        if cell_len(text) <= room:
            page.line(Text(" " * indent + label + text, style=style))
        else:
            page.entry(text, label=label, label_style=style, style=style, indent=indent)


def _add_sentences(page: Page, columns: list[_Column], rows: Sequence[Row], indent: int) -> None:
    """Each row as its first cell and what is known besides."""
    first, *others = columns
    for at, row in enumerate(rows, 1):
        known = [
            f"{column.title} {column.text(at)}".lstrip()
            for column in others
            if column.text(at) not in ("", UNKNOWN)
        ]
        label = f"{first.text(at)}: "
        page.entry(", ".join(known), label=label, style=_style(row), indent=indent)


def _cell(column: _Column, at: int) -> str:
    """The text with the space that aligns it."""
    text = column.text(at)
    space = " " * (column.width - cell_len(text))
    return text + space if column.left else space + text


def _style(row: Row) -> str:
    return "bold green" if "recommended" in row.marks else ROW_STYLES[row.state]
