"""The table of sizes as terminal text: aligned numbers, columns that give way to narrow windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from ..text import SizeColumn, SizeMarks, SizesTable
from .page import Page

INDENT = 2
GAP = 2
DROPPED_FIRST = (
    "operators_pct", "tflops", "step±", "tensor_core_pct", "watts", "sm_efficiency_pct",
    "per_joule", "used", "predicted", "mfu_pct", "padding", "input", "samples±", "tokens",
    "busy_pct",
)  # fmt: skip
"""Columns that a narrow terminal leaves out, least important first."""
USUAL_WIDTH = 80
KEPT = ("occupancy_pct", "step", "peak")
"""Columns that only a terminal below the usual width leaves out, after all others."""
DROPPED_NAMES = {"per_joule": "samples/J", "step±": "", "samples±": "", "note": "notes"}
"""Names of left-out columns where the title alone would not tell."""
STATE_STYLES = {"ok": "", "doubtful": "yellow", "interrupted": "yellow", "failed": "red"}


@dataclass(slots=True)
class Column:
    """One column: its two header cells and a cell for each row, aligned already."""

    key: str
    title: str
    unit: str
    cells: list[str]
    left: bool = False
    gap: int = GAP

    @property
    def width(self) -> int:
        """Widest cell."""
        return max(map(cell_len, [self.title, self.unit, *self.cells]))


def add_sizes(page: Page, table: SizesTable) -> None:
    """Appends the table, its legend and why cells are empty."""
    page.heading("Sizes")
    if not table.rows:
        page.entry("none was tried")
        return
    columns, short, dropped = add_table(page, table)
    shown = {column.key for column in columns}
    legend = table.legend_of(shown)
    if short and "note" in shown:
        legend = [*table.short_marks, *legend]
    if dropped:
        legend.append(f"no room for {', '.join(filter(None, dropped))}")
    if legend:
        page.entry("; ".join(legend).rstrip(".") + ".", style="dim", indent=INDENT)
    for text in table.reasons(shown):
        page.entry(text, style="dim", indent=INDENT)


def add_table(page: Page, table: SizesTable) -> tuple[list[Column], bool, list[str]]:
    """Appends the table alone; see `_fitting`."""
    columns, short, dropped = _fitting(page, table)
    for header in ([column.title for column in columns], [column.unit for column in columns]):
        if any(header):
            page.line(_line(columns, header, "dim"))
    for position, row in enumerate(table.rows):
        cells = [column.cells[position] for column in columns]
        page.line(_line(columns, cells, _style(row)))
    return columns, short, dropped


def _fitting(page: Page, table: SizesTable) -> tuple[list[Column], bool, list[str]]:
    """The columns that fit the page: first words get shorter, then columns go.

    Returns:
        The columns, whether words are short, the titles of what has no room.
    """
    columns = [_aligned(page, column, short=False) for column in table.columns]
    if _width(columns) <= page.width:
        return columns, False, []
    columns = [_aligned(page, column, short=True) for column in table.columns]
    dropped: list[str] = []
    for key in (*DROPPED_FIRST, *(("note",) if page.width >= USUAL_WIDTH else KEPT)):
        if _width(columns) <= page.width:
            break
        dropped += [DROPPED_NAMES.get(key, column.title) for column in columns if column.key == key]
        columns = [column for column in columns if key not in (column.key, _owner(column))]
    return columns, True, dropped


def _owner(column: Column) -> str:
    """The column that a `±` belongs to."""
    return column.key.rstrip("±")


def _aligned(page: Page, column: SizeColumn, *, short: bool) -> Column:
    texts = column.short_cells if short and column.short_cells else column.cells
    cells = [page.safe(text) for text in texts]
    left = column.align == "left"
    if not left:
        cells = _right(_decimals(cells) if column.align == "decimal" else cells)
    gap = 1 if column.key.endswith("±") else GAP
    return Column(column.key, column.title, column.unit, cells, left=left, gap=gap)


def _line(columns: Sequence[Column], cells: Sequence[str], style: str) -> Text:
    text = " " * (INDENT - columns[0].gap)
    for column, cell in zip(columns, cells, strict=True):
        space = " " * (column.width - cell_len(cell))
        text += " " * column.gap + (cell + space if column.left else space + cell)
    return Text(text.rstrip(), style=style)


def _width(columns: Sequence[Column]) -> int:
    return INDENT - columns[0].gap + sum(column.gap + column.width for column in columns)


def _style(row: SizeMarks) -> str:
    if row.state in ("ok", "doubtful") and "recommended" in row.marks:
        return "bold green"
    return STATE_STYLES[row.state]


def _right(cells: list[str]) -> list[str]:
    width = max(map(len, cells))
    return [cell.rjust(width) for cell in cells]


def _decimals(cells: list[str]) -> list[str]:
    """Cells with blanks behind, so that their decimal points stand below each other."""
    after = max(len(cell.partition(".")[2]) for cell in cells)
    filled = []
    for cell in cells:
        digits = len(cell.partition(".")[2])
        missing = after - digits + (1 if after and not digits else 0)
        filled.append(cell + " " * missing)
    return filled
