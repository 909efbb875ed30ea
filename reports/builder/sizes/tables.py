"""The tables of the report object."""

from __future__ import annotations

from collections.abc import Sequence

from ...report import Column, Row, RowState, Table
from ...sizes import SizeRow
from ...text import SizesTable
from ...words.wording import beside_value, clean

FIRST_COLUMNS = {"batch": 0, "note": 1}
"""The columns that come first; the others follow in their own order."""
LONGEST_LEGEND = 5000
"""Letters of what all columns mean."""


def plain_table(table: SizesTable, rows: Sequence[SizeRow]) -> Table:
    """The table of sizes with all its columns and the reasons of failures in its notes.

    What a size is stands beside it, where a narrow window shows it too.
    """
    if not table.rows:
        return Table(title="Sizes", columns=(), rows=(), notes=("No size was tried.",))
    columns: list[Column] = []
    cells: list[list[str]] = [[] for _ in rows]
    last = len(FIRST_COLUMNS)
    for column in sorted(table.columns, key=lambda column: FIRST_COLUMNS.get(column.key, last)):
        half = column.key.endswith("±")
        if not half:
            left = column.align == "left"
            columns.append(Column(title=column.title, unit=column.unit, left=left))
        for own, text in zip(cells, map(clean, column.cells), strict=True):
            if half:
                own[-1] = beside_value(own[-1], text)
            else:
                own.append(text)
    shown = {column.key for column in table.columns}
    legend = table.legend_of(shown)
    notes = table.reasons(shown)
    details = [row for row in rows if not row.trial.ran and row.trial.detail]
    notes += [f"{row.batch_size}: {row.trial.detail}" for row in details]
    return Table(
        title="Sizes",
        columns=tuple(columns),
        rows=tuple(
            Row(cells=tuple(own), marks=row.marks, state=_state(row))
            for own, row in zip(cells, rows, strict=True)
        ),
        notes=(
            *([clean("; ".join(legend) + ".", limit=LONGEST_LEGEND)] if legend else ()),
            *map(clean, notes),
        ),
    )


def _state(row: SizeRow) -> RowState:
    if not row.trial.ran:
        return "failed"
    return "doubtful" if row.failed_later is not None else "ok"
