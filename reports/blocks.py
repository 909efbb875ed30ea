"""A page as blocks: what is said, as data, and nothing of how a format says it.

A page is added by making a `Document`; then it has all formats: `terminal/document.py`,
`html/document.py` and `markdown/document.py` show it. Texts are cleaned and not escaped: each
renderer escapes for its own format. A table, a finding and what limits a step are those of
`report.py`, and stand among the blocks as they are.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Literal, TypeAlias

import msgspec

from ..records import Record
from .chart import Chart
from .report import Fact, Finding, LimitText, Table

Tone = Literal["plain", "strong", "dim", "good", "warning", "bad"]
"""`warning`: what to know before anything else is believed."""

Shown = Literal["everywhere", "files", "window"]
"""A window of text is a terminal's; HTML and Markdown are files."""


class Paragraph(Record, frozen=True, kw_only=True):
    """Sentences; the label may be empty and stands before them."""

    text: str
    label: str = ""
    tone: Tone = "plain"


class Facts(Record, frozen=True, kw_only=True):
    """Labels and what stands beside them."""

    facts: tuple[Fact, ...]


class Grid(Record, frozen=True, kw_only=True):
    """A table, and what a window of text may leave out of it; files have all.

    Attributes:
        dropped_first: titles, with their unit, of columns that go where there is no room, least
            important first.
        ends: title of a column of which the end of a cell tells most, as of a path: before a column
            goes, these are cut.
        cut: whether texts of the last column are cut rather than wrapped.
        legend: what columns mean, by their title; said of those that are shown.
        most_rows: that a window shows; `None` for all.
        more: how to see the others.
    """

    table: Table
    dropped_first: tuple[str, ...] = ()
    ends: str = ""
    cut: bool = False
    legend: dict[str, str] = msgspec.field(default_factory=dict)
    most_rows: int | None = None
    more: str = ""

    def legend_of(self, titles: Container[str]) -> str:
        """Meanings of these columns; empty where there are none."""
        said = [text for title, text in self.legend.items() if title in titles]
        return f"{'; '.join(said)}." if said else ""

    @property
    def whole_legend(self) -> str:
        """Meanings of all columns."""
        return self.legend_of([column.title for column in self.table.columns])


class Charts(Record, frozen=True, kw_only=True):
    """Charts beside each other, in HTML alone.

    Attributes:
        together: whether they have one x axis, so that a pointer reads all of them.
    """

    charts: tuple[Chart, ...]
    together: bool = False


class Code(Record, frozen=True, kw_only=True):
    """Python code to paste."""

    text: str


class Command(Record, frozen=True, kw_only=True):
    """A command or a path, never cut or wrapped, so that it can be copied."""

    label: str
    text: str


class Section(Record, frozen=True, kw_only=True):
    """Blocks under a title; without one they stand apart from what is before them.

    Attributes:
        folded: whether files show the title alone until somebody asks for the rest.
    """

    title: str = ""
    blocks: tuple[Block, ...]
    shown: Shown = "everywhere"
    folded: bool = False


Block: TypeAlias = (
    Paragraph | Facts | Table | Grid | Charts | Finding | LimitText | Code | Command | Section
)


class Document(Record, frozen=True, kw_only=True):
    """A page.

    Attributes:
        kind: what the page is, in few words; may be empty.
        title: what it is about.
        headline: the answer in a sentence.
        tone: of the headline.
    """

    kind: str = ""
    title: str
    headline: str
    tone: Tone = "strong"
    blocks: tuple[Block, ...]

    def walk(self) -> Iterator[Block]:
        """Every block, in order; a section before what is in it."""
        return _walk(self.blocks)


def _walk(blocks: Iterable[Block]) -> Iterator[Block]:
    for block in blocks:
        yield block
        if isinstance(block, Section):
            yield from _walk(block.blocks)


def paragraphs(texts: Iterable[str], tone: Tone = "plain") -> tuple[Paragraph, ...]:
    """A paragraph for each text that is not empty."""
    return tuple(Paragraph(text=text, tone=tone) for text in texts if text)
