"""The tables of the report object."""

from __future__ import annotations

from collections.abc import Sequence

from ....records import Advice
from ....units import format_seconds
from ...report import Column, Row, RowState, Table
from ...sizes import SizeRow
from ...text import SizesTable
from ...words.wording import beside_value, clean, percent

MAX_HOT = 10
"""Kernels or operators that are listed."""
BESIDE = {"batch": 0, "note": 1}
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
    for column in sorted(table.columns, key=lambda column: BESIDE.get(column.key, len(BESIDE))):
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


def hot_table(rows: Sequence[SizeRow], advice: Advice) -> tuple[Table | None, int | None]:
    """The most expensive kernels at the recommended size, else at the largest profiled one."""
    profiled = [
        row
        for row in rows
        if row.profile is not None and (row.profile.kernels or row.profile.operators)
    ]
    if not profiled:
        return None, None
    wanted = advice.recommended.batch_size if advice.recommended is not None else None
    row = next((row for row in profiled if row.batch_size == wanted), profiled[-1])
    profile = row.profile
    assert profile is not None
    columns: tuple[Column, ...]
    cells: list[tuple[str, ...]]
    if profile.kernels:
        whole = sum(kernel.total_s for kernel in profile.kernels)
        columns = (
            Column(title="kernel", left=True), Column(title="calls"), Column(title="time"),
            Column(title="of those listed", unit="%"), Column(title="occupancy", unit="%"),
        )  # fmt: skip
        cells = [
            (
                clean(kernel.name),
                str(kernel.num_calls),
                format_seconds(kernel.total_s),
                percent(100 * kernel.total_s / whole) if whole else "-",
                "-" if kernel.occupancy_pct is None else percent(kernel.occupancy_pct),
            )
            for kernel in profile.kernels[:MAX_HOT]
        ]
        title, note = "Kernels", "occupancy: achieved, estimated"
    else:
        columns = (Column(title="operator", left=True), Column(title="calls"),
                   Column(title="self time"))  # fmt: skip
        cells = [
            (clean(operator.name), str(operator.num_calls), format_seconds(operator.self_s))
            for operator in profile.operators[:MAX_HOT]
        ]
        title, note = "CPU operators", "self time: summed over threads"
    steps = f"of {profile.num_steps} profiled steps; {note}."
    table = Table(
        title=f"{title} at batch size {row.batch_size}",
        columns=columns,
        rows=tuple(Row(cells=texts) for texts in cells),
        notes=(steps,),
    )
    return table, row.batch_size
