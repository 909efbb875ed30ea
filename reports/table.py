"""The table of sizes as terminal text: aligned numbers, columns that give way to narrow windows."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from ..records import Advice, RunRecord, Spread
from ..units import GIB, MIB
from .layout import Page
from .sizes import SizeRow, outcome_words, size_rows
from .wording import measured, pad_digits, percent, plural, share_of

INDENT = 2
GAP = 2
UNKNOWN = "-"
SHORT_MARKS = {"recommended": "use", "fastest": "fast", "largest": "max", "yours": "now"}
DROPPED_FIRST = (
    "operators_pct", "step±", "tensor_core_pct", "watts", "sm_efficiency_pct", "per_joule", "used",
    "input", "samples±", "busy_pct",
)  # fmt: skip
"""What a narrow terminal does without, least important first."""
USUAL_WIDTH = 80
KEPT = ("occupancy_pct", "step", "peak")
"""What only a terminal below the usual width does without, after all others."""
DROPPED_NAMES = {"per_joule": "samples/J", "step±": "", "samples±": "", "note": "notes"}
"""What a column is called where its title alone would not tell."""
LEGEND = {
    "samples±": "±: half the interval of the median",
    "used": "used: share of the capacity",
    "busy_pct": "busy: share of the time in which the GPU did anything",
    "sm_efficiency_pct": "SM: share of the multiprocessors with work, an upper bound",
    "occupancy_pct": "occup.: achieved occupancy, estimated",
    "tensor_core_pct": "tensor: kernel time surely on tensor cores",
    "watts": "power: mean of the GPU",
    "per_joule": "/J: samples per joule",
    "operators_pct": "ops: share of the time inside CPU operators",
    "input": "input: share of the step spent waiting for the loader",
}
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


def add_table(page: Page, record: RunRecord, advice: Advice) -> None:
    """Appends the table, its legend and why cells are empty."""
    rows = size_rows(record, advice)
    page.heading("Sizes")
    if not rows:
        page.entry("none was tried")
        return
    columns, short, dropped = _fitting(page, record, rows)
    for header in ([one.title for one in columns], [one.unit for one in columns]):
        if any(header):
            page.line(_line(columns, header, "dim"))
    for position, row in enumerate(rows):
        page.line(_line(columns, [one.cells[position] for one in columns], _style(row)))
    shown = {one.key for one in columns}
    legend = legend_of(record, shown)
    if short and "note" in shown:
        words = {"largest": "largest that ran", "yours": "as the script is"}
        marks = dict.fromkeys(mark for row in rows for mark in row.marks)
        legend = [f"{SHORT_MARKS[mark]}: {words.get(mark, mark)}" for mark in marks] + legend
    if dropped:
        legend.append(f"no room for {', '.join(filter(None, dropped))}")
    if legend:
        page.entry("; ".join(legend).rstrip(".") + ".", style="dim", indent=INDENT)
    for text in empty_reasons(record, rows, shown):
        page.entry(text, style="dim", indent=INDENT)


def legend_of(record: RunRecord, shown: Container[str]) -> list[str]:
    """What the columns mean that are shown."""
    legend = {key: text for key, text in LEGEND.items() if key in shown}
    if "samples±" in legend and any(one.turns is not None for one in record.trials):
        legend["samples±"] += IN_TURN
    each = 1 if record.discovery is None else record.discovery.steps_per_batch
    if each > 1 and "step" in shown:
        legend["step"] = f"step: all {each} optimizer steps on a batch together"
    return list(legend.values())


def _fitting(
    page: Page, record: RunRecord, rows: Sequence[SizeRow]
) -> tuple[list[Column], bool, list[str]]:
    """The columns that fit the page: first words get shorter, then columns go.

    Returns:
        The columns, whether words are short, the titles of what has no room.
    """
    columns = size_columns(page.safe, record, rows, short=False)
    if _width(columns) <= page.width:
        return columns, False, []
    columns = size_columns(page.safe, record, rows, short=True)
    dropped: list[str] = []
    for key in (*DROPPED_FIRST, *(("note",) if page.width >= USUAL_WIDTH else KEPT)):
        if _width(columns) <= page.width:
            break
        dropped += [DROPPED_NAMES.get(key, one.title) for one in columns if one.key == key]
        columns = [one for one in columns if key not in (one.key, one.key.rstrip("±"))]
    return columns, True, dropped


def size_columns(
    safe: Callable[[str], str], record: RunRecord, rows: Sequence[SizeRow], *, short: bool
) -> list[Column]:
    """The columns that have something to say; a `±` column goes with the one before it.

    Args:
        safe: makes text showable.
        short: words that need little room.
    """
    marks = [
        (" " if short else ", ").join(SHORT_MARKS[one] if short else one for one in row.marks)
        for row in rows
    ]
    outcomes = [safe(outcome_words(row, short=short)) for row in rows]
    columns = [
        Column("batch", "batch", "", _right([str(row.batch_size) for row in rows])),
        *_spreads(safe, "step", "step", [row.step_s for row in rows]),
        *_spreads(safe, "samples", "samples", [row.samples_per_s for row in rows]),
        *_memory(record, rows),
        *_shares(rows),
        *_energy(rows),
        Column("outcome", "outcome", "", outcomes, left=True),
        Column("note", "note", "", marks, left=True),
    ]
    return [
        one
        for one in columns
        if one.key in ("batch", "outcome") or any(cell.strip(" -") for cell in one.cells)
    ]


def _spreads(
    safe: Callable[[str], str], key: str, title: str, spreads: Sequence[Spread | None]
) -> list[Column]:
    known = [one for one in spreads if one is not None]
    unit, factor = "/s", 1.0
    if key == "step":
        slow = bool(known) and min(one.median for one in known) >= 1
        unit, factor = ("s", 1.0) if slow else ("ms", 1e3)
    cells = [(UNKNOWN, "") if one is None else measured(one, factor) for one in spreads]
    return [
        Column(key, title, unit, _decimals([value for value, _ in cells])),
        Column(f"{key}±", "", "", [safe(half) for _, half in cells], left=True, gap=1),
    ]


def _memory(record: RunRecord, rows: Sequence[SizeRow]) -> list[Column]:
    peaks = [row.peak_bytes for row in rows]
    top = max((one for one in peaks if one is not None), default=0)
    unit, size = ("GiB", GIB) if top >= GIB else ("MiB", MIB)
    decimals = 0 if unit == "MiB" else 2 if top < 10 * GIB else 1
    columns = [
        Column(
            "peak",
            "peak",
            unit,
            _right([UNKNOWN if one is None else f"{one / size:.{decimals}f}" for one in peaks]),
        )
    ]
    if record.device is not None:
        capacity = record.device.capacity_bytes
        cells = [UNKNOWN if one is None else share_of(one, capacity) for one in peaks]
        columns.append(Column("used", "used", "%", _right(cells)))
    return columns


def _shares(rows: Sequence[SizeRow]) -> list[Column]:
    """The GPU's shares where a GPU was profiled, else the share of CPU operators."""
    on_gpu = any(row.profile is not None and row.profile.busy_pct is not None for row in rows)
    fields = GPU_SHARES if on_gpu else {"operators_pct": "ops"}
    columns = []
    for field, title in fields.items():
        values = [row.profiled(field) for row in rows]
        cells = [UNKNOWN if one is None else percent(one) for one in values]
        columns.append(Column(field, title, "%", _right(cells)))
    waits = [row.input_pct for row in rows]
    cells = [UNKNOWN if one is None else percent(one) for one in waits]
    columns.append(Column("input", "input", "%", _right(cells)))
    return columns


def _energy(rows: Sequence[SizeRow]) -> list[Column]:
    """What the GPU's counters said; the columns go where they said nothing."""
    power = [UNKNOWN if row.watts is None else f"{row.watts:.0f}" for row in rows]
    per_joule = [
        UNKNOWN if row.samples_per_joule is None else pad_digits(row.samples_per_joule, 0.01)
        for row in rows
    ]
    return [
        Column("watts", "power", "W", _right(power)),
        Column("per_joule", "samples", "/J", _decimals(per_joule)),
    ]


def _line(columns: Sequence[Column], cells: Sequence[str], style: str) -> Text:
    text = " " * (INDENT - columns[0].gap)
    for column, cell in zip(columns, cells, strict=True):
        space = " " * (column.width - cell_len(cell))
        text += " " * column.gap + (cell + space if column.left else space + cell)
    return Text(text.rstrip(), style=style)


def _width(columns: Sequence[Column]) -> int:
    return INDENT - columns[0].gap + sum(one.gap + one.width for one in columns)


def _style(row: SizeRow) -> str:
    if not row.trial.ran:
        return "yellow" if row.trial.outcome == "interrupted" else "red"
    if "recommended" in row.marks:
        return "bold green"
    return "yellow" if row.failed_later is not None else ""


def _right(cells: list[str]) -> list[str]:
    width = max(map(len, cells))
    return [one.rjust(width) for one in cells]


def _decimals(cells: list[str]) -> list[str]:
    """Cells whose decimal points stand below each other."""
    after = max(len(one.partition(".")[2]) for one in cells)
    filled = []
    for one in cells:
        digits = len(one.partition(".")[2])
        missing = after - digits + (1 if after and not digits else 0)
        filled.append(one + " " * missing)
    return _right(filled)


def empty_reasons(record: RunRecord, rows: Sequence[SizeRow], shown: set[str]) -> list[str]:
    """Why cells are empty in rows of sizes that ran, each reason once."""
    on_gpu = record.device is not None and record.device.kind != "cpu"
    unasked = {"operators_pct"} if on_gpu else set(GPU_SHARES)
    found: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for key, (field, word) in REASON_FIELDS.items():
        if key in unasked and key not in shown:
            continue
        missing: dict[str, list[int]] = {}
        for row in rows:
            reason = row.unavailable.get(field) or row.unavailable.get(_whole(key))
            if row.trial.ran and reason and _missing(row, key):
                missing.setdefault(reason, []).append(row.batch_size)
        for reason, sizes in missing.items():
            found.setdefault((reason, tuple(sizes)), []).append(word)
    return [
        f"no {', '.join(words)} at {_some(sizes, len(rows))}: {reason}"
        for (reason, sizes), words in found.items()
    ]


def _whole(key: str) -> str:
    """The field that holds the column's field."""
    if key in ("step", "input"):
        return key
    return "memory" if key == "peak" else "profile"


def _missing(row: SizeRow, key: str) -> bool:
    if key == "step":
        return row.step_s is None and row.trial.kind == "timed"
    if key == "peak":
        return row.peak_bytes is None
    if row.trial.kind != "timed":
        return False
    if key == "input":
        return row.input_pct is None
    return row.profiled(key) is None


def _some(sizes: Sequence[int], num_rows: int) -> str:
    if len(sizes) == num_rows:
        return "any size"
    return ", ".join(map(str, sizes)) if len(sizes) <= 4 else plural(len(sizes), "size")
