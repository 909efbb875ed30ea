"""The report as a window of text shows it: the report object, and what is said there otherwise.

`reports/builder/text.py` makes it. A window has little room: cells have shorter words, columns go,
and the legend is of those that stay. None of this is in the report's JSON.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Literal

import msgspec

from ..records import FileTouched, Record
from .report import Fact, Report, Row

SizeState = Literal["ok", "doubtful", "failed", "interrupted"]


class SizeColumn(Record, frozen=True, kw_only=True):
    """A column of the table of sizes.

    Attributes:
        key: `samples±` goes with `samples`.
        cells: one for each size, not aligned; `-` where nothing is known.
        short_cells: the same in fewer words; empty where there are none.
        align: `decimal` puts the points below each other.
    """

    key: str
    title: str
    unit: str = ""
    cells: tuple[str, ...]
    short_cells: tuple[str, ...] = ()
    align: Literal["left", "right", "decimal"] = "right"


class SizeMarks(Record, frozen=True, kw_only=True):
    """How a size is told from others.

    Attributes:
        marks: `recommended`, `fastest`, `largest`, `yours`.
    """

    marks: tuple[str, ...]
    state: SizeState


class EmptyCells(Record, frozen=True, kw_only=True):
    """Why cells of a column are empty.

    Attributes:
        key: of the column.
        word: what is missing.
        sizes: that lack it; in words in `where`.
        always: said also where the column is not shown.
    """

    key: str
    word: str
    sizes: tuple[int, ...]
    where: str
    reason: str
    always: bool


class SizesTable(Record, frozen=True, kw_only=True):
    """The table of sizes, from which a renderer takes the columns that it has room for.

    Attributes:
        rows: one for each size, smallest first.
        legend: what a column means, by its key.
        short_marks: what the short words for marks mean.
    """

    columns: tuple[SizeColumn, ...] = ()
    rows: tuple[SizeMarks, ...] = ()
    legend: dict[str, str] = msgspec.field(default_factory=dict)
    short_marks: tuple[str, ...] = ()
    empty: tuple[EmptyCells, ...] = ()

    def part(self, places: Sequence[int], keys: Container[str], *, short: bool) -> SizesTable:
        """Some rows and columns of it.

        Args:
            short: keeps the short words, which a legend must explain.
        """
        return msgspec.structs.replace(
            self,
            columns=tuple(
                msgspec.structs.replace(
                    column,
                    cells=tuple(column.cells[at] for at in places),
                    short_cells=tuple(column.short_cells[at] for at in places)
                    if short and column.short_cells
                    else (),
                )
                for column in self.columns
                if column.key in keys
            ),
            rows=tuple(self.rows[at] for at in places),
        )

    def legend_of(self, shown: Container[str]) -> list[str]:
        """Meanings of the columns that are shown."""
        return [text for key, text in self.legend.items() if key in shown]

    def reasons(self, shown: Container[str]) -> list[str]:
        """Why cells are empty, each reason once, given the columns that are shown."""
        words: dict[tuple[str, tuple[int, ...]], list[str]] = {}
        where = {}
        for cells in self.empty:
            if cells.always or cells.key in shown:
                words.setdefault((cells.reason, cells.sizes), []).append(cells.word)
                where[cells.sizes] = cells.where
        return [
            f"no {', '.join(missing)} at {where[sizes]}: {reason}"
            for (reason, sizes), missing in words.items()
        ]


class MemoryLines(Record, frozen=True, kw_only=True):
    """Where the memory goes, in few lines.

    Attributes:
        categories: in one sentence.
        lines: of the script that made most of it; the label is the memory.
        unknown: why nothing is known; empty where something is.
    """

    categories: str = ""
    lines: tuple[Fact, ...] = ()
    unknown: str = ""


class TextReport(Record, frozen=True, kw_only=True):
    """One run, as a window of text shows it.

    Attributes:
        sure: whether nothing speaks against the answer.
        change: the parts of the line to change, whole.
        training_unknown: why nothing is said of the training; empty where something is.
        ranks: the report's `distribution`; its labels say what is a part of what.
        epochs_unknown: why no epoch has a time; empty where some have one.
        epochs: devices, time of an epoch, speed-up, on what it rests; `None` where several ranks
            were not compared.
        tail_bad: of each sentence of the report's tail, whether it is bad news.
        files: that changed while the script was probed.
        memory: where it goes; `None` where nobody looked.
    """

    report: Report
    sizes: SizesTable
    sure: bool
    change: tuple[str, ...] = ()
    training_unknown: str = ""
    ranks: tuple[Fact, ...] = ()
    epochs_unknown: str = ""
    epochs: tuple[Row, ...] | None = None
    tail_bad: tuple[bool, ...] = ()
    files: tuple[FileTouched, ...] = ()
    memory: MemoryLines | None = None
