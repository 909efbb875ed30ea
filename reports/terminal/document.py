"""A page of blocks as terminal text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from ..blocks import (
    Block,
    Charts,
    Code,
    Command,
    Document,
    Facts,
    Grid,
    Paragraph,
    Section,
    Tone,
)
from ..report import Finding, LimitText, Table
from .page import Page
from .sections import add_ending, add_finding, add_limit, pairs_of
from .tables import add_grid

INSET = 2
"""How far all but sentences stands in below the headline, and all below the title of a section."""
STYLES: dict[Tone, str] = {
    "plain": "", "strong": "bold", "dim": "dim", "good": "bold green", "warning": "yellow",
    "bad": "bold red",
}  # fmt: skip


def render(
    document: Document,
    *,
    files: Sequence[tuple[str, str]] = (),
    next_command: str = "",
    others: Sequence[str] = (),
    width: int,
    color: bool,
    encoding: str = "utf-8",
) -> str:
    """The whole page, without what is for files alone.

    Args:
        files: label and path of what was written, in order.
        next_command: what to type next.
        others: what else could be typed.
        width: columns of the terminal; no line is longer, except for paths and commands.
        color: whether ANSI codes may be used.
        encoding: of the output; characters that it lacks are replaced.
    """
    page = Page(width, encoding)
    page.entry(document.headline, style=STYLES[document.tone], indent=0)
    add_blocks(page, document.blocks, indent=0)
    if files or next_command or others:
        add_ending(page, files, next_command, others)
    return page.render(color=color)


def add_blocks(page: Page, blocks: Sequence[Block], *, indent: int) -> None:
    """Appends blocks below each other."""
    for block in blocks:
        _add(page, block, indent)


def _add(page: Page, block: Block, indent: int) -> None:
    inset = indent or INSET
    match block:
        case Section():
            _add_section(page, block, indent)
        case Paragraph():
            label = f"{block.label}: " if block.label else ""
            style = STYLES[block.tone]
            page.entry(block.text, label=label, label_style="bold", style=style, indent=indent)
        case Facts():
            page.pairs(pairs_of(block.facts), indent=inset)
        case Grid():
            add_grid(page, block, indent=inset)
        case Table():
            add_grid(page, Grid(table=block), indent=inset)
        case Finding():
            add_finding(page, block, indent=inset)
        case LimitText():
            add_limit(page, block, indent=inset)
        case Code():
            for line in block.text.splitlines():  # as it is, to be pasted
                page.line(Text(" " * (indent + INSET) + page.safe(line)))
        case Command():
            label = f"{block.label}: " if block.label else ""
            page.whole(block.text, label=label, label_style="bold", indent=indent)
        case Charts():
            pass


def _add_section(page: Page, section: Section, indent: int) -> None:
    """The title and what is below it; nothing where nothing of it is for a window."""
    if section.shown == "files":
        return
    part = Page(page.width, page.encoding)
    if section.title:
        part.entry(section.title, style="bold", indent=indent)
    opened = part.num_lines
    add_blocks(part, section.blocks, indent=indent + INSET if section.title else indent)
    if part.num_lines > opened:
        page.blank()
        page.add(part)
