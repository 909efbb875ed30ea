"""The table of sizes: its columns, what each says, what it means, why cells are empty."""

from __future__ import annotations

from collections.abc import Sequence

from ....records import RunRecord, Spread
from ....units import GIB, MIB
from ...report import Column, Row, RowState, Table
from ...sizes import SizeRow, outcome_words
from ...text import EmptyCells, SizeColumn, SizeMarks, SizesTable, SizeState
from ...words.wording import beside_value, clean, measured, pad_digits, percent, plural, share_of

UNKNOWN = "-"
SHORT_MARKS = {"recommended": "use", "fastest": "fast", "largest": "max", "yours": "now"}
MARKS = {"largest": "largest that ran", "yours": "as the script is"}
"""Meanings of the marks that do not explain themselves."""
LEGEND = {
    "samples±": "±: half the interval of the median",
    "predicted": "predicted: the peak expected before the size ran (estimate), the first by "
    "tensors alone",
    "used": "used: share of the capacity",
    "busy_pct": "busy: share of the time in which the GPU did anything",
    "sm_efficiency_pct": "SM: share of the multiprocessors with work, an upper bound",
    "occupancy_pct": "occup.: achieved occupancy, estimated",
    "tensor_core_pct": "tensor: kernel time surely on tensor cores",
    "tflops": "TFLOP/s: of the model, 10^12 operations a second",
    "mfu_pct": "MFU: share of the GPU's dense peak",
    "watts": "power: mean of the GPU",
    "per_joule": "/J: samples per joule",
    "operators_pct": "ops: share of the time inside CPU operators",
    "input": "input: share of the step spent waiting for the loader",
}
COUNTED = {
    "sm_efficiency_pct": "SM: share of the time that a multiprocessor has work, by the driver's "
    "counters",
    "occupancy_pct": "occup.: occupancy while a multiprocessor has work, by the driver's counters",
}
"""Legends of the columns that the driver counted, where nothing need be estimated."""
IN_TURN = ", without the machine's drift where sizes took turns"
GPU_SHARES = {
    "busy_pct": "busy",
    "sm_efficiency_pct": "SM",
    "occupancy_pct": "occup.",
    "tensor_core_pct": "tensor",
}
REASON_FIELDS = {
    "step": ("step_s", "step time"),
    "peak": ("peak_bytes", "peak memory"),
    "busy_pct": ("busy_pct", "busy"),
    "sm_efficiency_pct": ("sm_efficiency_pct", "SM efficiency"),
    "occupancy_pct": ("occupancy_pct", "occupancy"),
    "tensor_core_pct": ("tensor_core_pct", "tensor-core share"),
    "operators_pct": ("operators_pct", "operators"),
    "input": ("input_wait_s", "input wait"),
}
"""Column to the record's field that says why it is unknown, and the word for it."""
FIRST_COLUMNS = {"batch": 0, "note": 1}
"""The columns that come first; the others follow in their own order."""
LONGEST_LEGEND = 5000
"""Letters of what all columns mean."""


def sizes_table(record: RunRecord, rows: Sequence[SizeRow]) -> SizesTable:
    """The table of a run; without columns if no size was tried."""
    if not rows:
        return SizesTable()
    marks = dict.fromkeys(mark for row in rows for mark in row.marks)
    return SizesTable(
        columns=_columns(record, rows),
        rows=tuple(SizeMarks(marks=row.marks, state=_state(row)) for row in rows),
        legend=_legend(record, rows),
        short_marks=tuple(f"{SHORT_MARKS[mark]}: {MARKS.get(mark, mark)}" for mark in marks),
        empty=_empty(record, rows),
    )


def _state(row: SizeRow) -> SizeState:
    if not row.trial.ran:
        return "interrupted" if row.trial.outcome == "interrupted" else "failed"
    return "doubtful" if row.failed_later is not None else "ok"


def _legend(record: RunRecord, rows: Sequence[SizeRow]) -> dict[str, str]:
    legend = LEGEND | (COUNTED if _are_counted(rows) else {})
    counted = [trial.tokens for trial in record.trials if trial.tokens is not None]
    if counted and all(tokens.real_per_s is None for tokens in counted):
        legend["tokens"] = f"{counted[0].unit}: padding, if any, included"
    elif any(tokens.real_per_s is not None and tokens.padding_share for tokens in counted):
        legend["tokens"] = f"{counted[0].unit}: without padding"
    if any(trial.turns is not None for trial in record.trials):
        legend["samples±"] += IN_TURN
    each = 1 if record.discovery is None else record.discovery.steps_per_batch
    if each > 1:
        legend["step"] = f"step: all {each} optimizer steps on a batch together"
    return legend


def _columns(record: RunRecord, rows: Sequence[SizeRow]) -> tuple[SizeColumn, ...]:
    """The columns that have something to say; a `±` column goes with the one before it."""
    columns = [
        SizeColumn(
            key="batch", title=_size_title(record), cells=tuple(str(row.batch_size) for row in rows)
        ),
        *_spreads("step", "step", [row.step_s for row in rows]),
        *_spreads("samples", "samples", [row.samples_per_s for row in rows]),
        *_tokens(rows),
        *([] if on_cpu(record) else _flops(rows)),
        *_memory(record, rows),
        *_shares(rows),
        *_energy(rows),
        SizeColumn(
            key="outcome",
            title="outcome",
            cells=tuple(outcome_words(row, short=False) for row in rows),
            short_cells=tuple(outcome_words(row, short=True) for row in rows),
            align="left",
        ),
        SizeColumn(
            key="note",
            title="note",
            cells=tuple(", ".join(row.marks) for row in rows),
            short_cells=tuple(" ".join(SHORT_MARKS[mark] for mark in row.marks) for row in rows),
            align="left",
        ),
    ]
    return tuple(
        column
        for column in columns
        if column.key in ("batch", "outcome") or any(cell.strip(" -") for cell in column.cells)
    )


def _size_title(record: RunRecord) -> str:
    discovery = record.discovery
    if discovery is None or discovery.axis == "samples":
        return "batch"
    return discovery.primary.parameter or discovery.axis


def _spreads(key: str, title: str, spreads: Sequence[Spread | None]) -> list[SizeColumn]:
    known = [spread for spread in spreads if spread is not None]
    unit, factor = "/s", 1.0
    if key == "step":
        slow = bool(known) and min(spread.median for spread in known) >= 1
        unit, factor = ("s", 1.0) if slow else ("ms", 1e3)
    cells = [(UNKNOWN, "") if spread is None else measured(spread, factor) for spread in spreads]
    values, halves = zip(*cells, strict=True)
    return [
        SizeColumn(key=key, title=title, unit=unit, cells=values, align="decimal"),
        SizeColumn(key=f"{key}±", title="", cells=halves, align="left"),
    ]


def _tokens(rows: Sequence[SizeRow]) -> list[SizeColumn]:
    """Tokens per second and the share of padding; the columns go where batches hold no tokens."""
    real = any(row.real_tokens_per_s is not None for row in rows)
    rates = [row.real_tokens_per_s if real else row.positions_per_s for row in rows]
    cells = tuple(UNKNOWN if rate is None else measured(rate)[0] for rate in rates)
    unit = next((row.tokens.unit for row in rows if row.tokens is not None), "tokens")
    return [
        SizeColumn(key="tokens", title=unit, unit="/s", cells=cells, align="decimal"),
        _percents("padding", "padding", [row.padding_pct for row in rows]),
    ]


def on_cpu(record: RunRecord) -> bool:
    """Whether a CPU was measured: what it computes a second stands beside the table."""
    return record.device is None or record.device.kind == "cpu"


def _flops(rows: Sequence[SizeRow]) -> list[SizeColumn]:
    """Columns of the model's operations per second, and of their share of a known peak."""
    rates = [row.tflops_per_s for row in rows]
    cells = tuple(UNKNOWN if rate is None else pad_digits(rate.median, 0.01) for rate in rates)
    return [
        SizeColumn(key="tflops", title="model", unit="TFLOP/s", cells=cells, align="decimal"),
        _percents("mfu_pct", "MFU", [row.mfu_pct for row in rows]),
    ]


def _memory(record: RunRecord, rows: Sequence[SizeRow]) -> list[SizeColumn]:
    peaks = [row.peak_bytes for row in rows]
    predicted = [row.predicted_bytes for row in rows]
    top = max((peak for peak in [*peaks, *predicted] if peak is not None), default=0)
    unit, size = ("GiB", GIB) if top >= GIB else ("MiB", MIB)
    decimals = 0 if unit == "MiB" else 2 if top < 10 * GIB else 1
    columns = []
    for key, values in (("peak", peaks), ("predicted", predicted)):
        cells = [UNKNOWN if peak is None else f"{peak / size:.{decimals}f}" for peak in values]
        columns.append(SizeColumn(key=key, title=key, unit=unit, cells=tuple(cells)))
    if record.device is not None:
        capacity = record.device.capacity_bytes
        cells = [UNKNOWN if peak is None else share_of(peak, capacity) for peak in peaks]
        columns.append(SizeColumn(key="used", title="used", unit="%", cells=tuple(cells)))
    return columns


def _shares(rows: Sequence[SizeRow]) -> list[SizeColumn]:
    """The GPU's shares where a GPU was profiled, else the share of CPU operators."""
    on_gpu = any(row.profile is not None and row.profile.busy_pct is not None for row in rows)
    fields = GPU_SHARES if on_gpu else {"operators_pct": "ops"}
    counted = _are_counted(rows)
    columns = [
        _percents(field, title, [_share(row, field, counted=counted) for row in rows])
        for field, title in fields.items()
    ]
    return [*columns, _percents("input", "input", [row.input_pct for row in rows])]


def _are_counted(rows: Sequence[SizeRow]) -> bool:
    """Whether the driver counted the work of all sizes that were timed."""
    timed = [row for row in rows if row.trial.ran and row.trial.kind == "timed"]
    return bool(timed) and all(_counted(row, "occupancy_pct") is not None for row in timed)


def _share(row: SizeRow, field: str, *, counted: bool) -> float | None:
    return _counted(row, field) if counted and field in COUNTED else row.profiled(field)


def _counted(row: SizeRow, field: str) -> float | None:
    """A value by the driver's counters; occupancy counts time with work, as the estimate does."""
    counters = row.counters
    if counters is None or counters.sm_active_pct is None or counters.sm_occupancy_pct is None:
        return None
    if field == "sm_efficiency_pct":
        return counters.sm_active_pct
    if counters.sm_active_pct <= 0:
        return None
    return min(100.0, 100 * counters.sm_occupancy_pct / counters.sm_active_pct)


def _percents(key: str, title: str, values: Sequence[float | None]) -> SizeColumn:
    cells = tuple(UNKNOWN if value is None else percent(value) for value in values)
    return SizeColumn(key=key, title=title, unit="%", cells=cells)


def _energy(rows: Sequence[SizeRow]) -> list[SizeColumn]:
    """Columns of the power and of samples per joule, by the GPU's counters."""
    power = [UNKNOWN if row.watts is None else f"{row.watts:.0f}" for row in rows]
    per_joule = [
        UNKNOWN if row.samples_per_joule is None else pad_digits(row.samples_per_joule, 0.01)
        for row in rows
    ]
    return [
        SizeColumn(key="watts", title="power", unit="W", cells=tuple(power)),
        SizeColumn(
            key="per_joule", title="samples", unit="/J", cells=tuple(per_joule), align="decimal"
        ),
    ]


def _empty(record: RunRecord, rows: Sequence[SizeRow]) -> tuple[EmptyCells, ...]:
    """Why cells are empty in rows of sizes that ran."""
    on_gpu = record.device is not None and record.device.kind != "cpu"
    unasked = {"operators_pct"} if on_gpu else set(GPU_SHARES)
    counted = _are_counted(rows)
    empty = []
    for key, (field, word) in REASON_FIELDS.items():
        missing: dict[str, list[int]] = {}
        for row in rows:
            reason = row.unavailable.get(field) or row.unavailable.get(_whole(key))
            if row.trial.ran and reason and _missing(row, key, counted=counted):
                missing.setdefault(reason, []).append(row.batch_size)
        for reason, sizes in missing.items():
            empty.append(
                EmptyCells(
                    key=key,
                    word=word,
                    sizes=tuple(sizes),
                    where=_some(sizes, len(rows)),
                    reason=reason,
                    always=key not in unasked,
                )
            )
    return tuple(empty)


def _whole(key: str) -> str:
    """The field that holds the column's field."""
    if key in ("step", "input"):
        return key
    return "memory" if key == "peak" else "profile"


def _missing(row: SizeRow, key: str, *, counted: bool) -> bool:
    if key == "step":
        return row.step_s is None and row.trial.kind == "timed"
    if key == "peak":
        return row.peak_bytes is None
    if row.trial.kind != "timed":
        return False
    if key == "input":
        return row.input_pct is None
    return _share(row, key, counted=counted) is None


def _some(sizes: Sequence[int], num_rows: int) -> str:
    if len(sizes) == num_rows:
        return "any size"
    return ", ".join(map(str, sizes)) if len(sizes) <= 4 else plural(len(sizes), "size")


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
            Row(cells=tuple(own), marks=row.marks, state=_row_state(row))
            for own, row in zip(cells, rows, strict=True)
        ),
        notes=(
            *([clean("; ".join(legend) + ".", limit=LONGEST_LEGEND)] if legend else ()),
            *map(clean, notes),
        ),
    )


def _row_state(row: SizeRow) -> RowState:
    state = _state(row)
    return "failed" if state == "interrupted" else state
