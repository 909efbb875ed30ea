"""The tables of the report object."""

from __future__ import annotations

from collections.abc import Sequence

from ..records import Advice, RunRecord
from ..units import format_seconds
from .report import Column, Row, RowState, Table
from .sizes import SizeRow
from .table import empty_reasons, legend_of, size_columns
from .wording import clean, percent

MAX_HOT = 10
"""Kernels or operators that are listed."""


def sizes_table(record: RunRecord, rows: Sequence[SizeRow]) -> Table:
    """The terminal's table of sizes, without a window's limits."""
    if not rows:
        return Table(title="Sizes", columns=(), rows=(), notes=("No size was tried.",))
    found = size_columns(clean, record, rows, short=False)
    columns: list[Column] = []
    cells: list[list[str]] = [[] for _ in rows]
    for one in found:
        half = one.key.endswith("±")
        if not half:
            columns.append(Column(title=one.title, unit=one.unit, left=one.left))
        for position, text in enumerate(one.cells):
            if half:
                cells[position][-1] = f"{cells[position][-1]} {text.strip()}".strip()
            else:
                cells[position].append(text.strip())
    shown = {one.key for one in found}
    legend = legend_of(record, shown)
    notes = ["; ".join(legend) + "."] if legend else []
    notes += empty_reasons(record, rows, shown)
    details = [row for row in rows if not row.trial.ran and row.trial.detail]
    notes += [f"{row.batch_size}: {row.trial.detail}" for row in details]
    return Table(
        title="Sizes",
        columns=tuple(columns),
        rows=tuple(
            Row(cells=tuple(own), marks=row.marks, state=_state(row))
            for own, row in zip(cells, rows, strict=True)
        ),
        notes=tuple(map(clean, notes)),
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
    row = next((one for one in profiled if one.batch_size == wanted), profiled[-1])
    profile = row.profile
    assert profile is not None
    columns: tuple[Column, ...]
    cells: list[tuple[str, ...]]
    if profile.kernels:
        whole = sum(one.total_s for one in profile.kernels)
        columns = (
            Column(title="kernel", left=True), Column(title="calls"), Column(title="time"),
            Column(title="of those listed", unit="%"), Column(title="occupancy", unit="%"),
        )  # fmt: skip
        cells = [
            (
                clean(one.name),
                str(one.num_calls),
                format_seconds(one.total_s),
                percent(100 * one.total_s / whole) if whole else "-",
                "-" if one.occupancy_pct is None else percent(one.occupancy_pct),
            )
            for one in profile.kernels[:MAX_HOT]
        ]
        title, note = "Kernels", "occupancy: achieved, estimated"
    else:
        columns = (Column(title="operator", left=True), Column(title="calls"),
                   Column(title="self time"))  # fmt: skip
        cells = [
            (clean(one.name), str(one.num_calls), format_seconds(one.self_s))
            for one in profile.operators[:MAX_HOT]
        ]
        title, note = "CPU operators", "self time: summed over threads"
    steps = f"of {profile.num_steps} profiled steps; {note}."
    table = Table(
        title=f"{title} at batch size {row.batch_size}",
        columns=columns,
        rows=tuple(Row(cells=one) for one in cells),
        notes=(steps,),
    )
    return table, row.batch_size
