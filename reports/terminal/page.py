"""A page of terminal text: lines that fit the width, hanging indents, no trailing blanks."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ..words.wording import clean

MIN_WIDTH = 40
"""A narrower window is laid out as if it had this many columns."""
MIN_BODY = 14
NARROW = 60
"""Below this, labels stand before their value instead of in a column of their own."""


class Page:
    """Collects lines. All text is cleaned on its way in; nothing is read as markup.

    Args:
        width: columns of the terminal.
        encoding: what the output can hold.
    """

    def __init__(self, width: int, encoding: str = "utf-8") -> None:
        self.width = max(MIN_WIDTH, width)
        self.encoding = encoding
        self._lines: list[Text] = []
        self._console = _console(self.width, color=False)

    @property
    def num_lines(self) -> int:
        """Lines so far."""
        return len(self._lines)

    def add(self, other: Page) -> None:
        """Appends the lines of another page of the same width."""
        self._lines += other._lines

    @property
    def narrow(self) -> bool:
        """Whether little room is left beside labels."""
        return self.width < NARROW

    def safe(self, text: str) -> str:
        """The text in characters that may be shown."""
        return clean(text, self.encoding)

    def blank(self) -> None:
        """An empty line, never two and never the first."""
        if self._lines and self._lines[-1].plain:
            self._lines.append(Text())

    def heading(self, text: str) -> None:
        """A line that opens a section."""
        self.blank()
        self.entry(text, style="bold", indent=0)

    def entry(
        self, text: str, *, label: str = "", style: str = "", label_style: str = "", indent: int = 2
    ) -> None:
        """Text wrapped to the width; all its lines begin where the label ends.

        Whoever makes the page has cut what is too long.
        """
        label, text = self.safe(label), clean(text, self.encoding, limit=len(text) + 4)
        room = self.width - indent - cell_len(label)
        if label and room < MIN_BODY:
            self.entry(label.rstrip(), style=label_style, indent=indent)
            self.entry(text, style=style, indent=min(indent + 2, self.width - MIN_BODY))
            return
        wrapped = Text(text, style=style).wrap(self._console, room, overflow="fold")
        for position, line in enumerate(wrapped):
            line.rstrip()
            start = Text(" " * indent)
            if position == 0:
                start.append(label, style=label_style)
            else:
                start.append(" " * cell_len(label))
            self.line(start + line)

    def whole(self, text: str, *, label: str = "", label_style: str = "", indent: int = 2) -> None:
        """A path or command, never cut or wrapped, so that it can be copied."""
        line = Text(" " * indent)
        line.append(self.safe(label), style=label_style)
        line.append(clean(text, self.encoding, limit=len(text) + 4))
        self.line(line)

    def pairs(self, rows: Sequence[tuple[str, str]], *, indent: int = 2) -> None:
        """Labels in one column, values in the next."""
        column = max((len(label) for label, _ in rows), default=0) + 2
        for label, value in rows:
            shown = f"{label}: " if self.narrow else label.ljust(column)
            if self.narrow:
                self.entry(f"{shown}{value}", indent=indent)
            else:
                self.entry(value, label=shown, label_style="dim", indent=indent)

    def line(self, line: Text) -> None:
        """A line as it is; its text must be clean already."""
        line.rstrip()
        line.no_wrap = True
        self._lines.append(line)

    def render(self, *, color: bool) -> str:
        """The page, with or without ANSI codes; ends with a line break."""
        console = _console(self.width, color=color)
        for line in self._lines:
            console.print(line, soft_wrap=True, markup=False, highlight=False, emoji=False)
        out = console.file
        assert isinstance(out, StringIO)
        return out.getvalue()


def _console(width: int, *, color: bool) -> Console:
    """A console whose output depends on nothing but its arguments."""
    return Console(
        force_jupyter=False,  # in a notebook too this is text, for whoever asked for it
        file=StringIO(),
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        _environ={},
    )
