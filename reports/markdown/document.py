"""A page of blocks as Markdown, for pull requests and issues; as GitHub and GitLab read it."""

from __future__ import annotations

from collections.abc import Sequence

from ..blocks import Block, Charts, Code, Command, Document, Facts, Grid, Paragraph, Section
from ..report import Finding, LimitText, LongTable, Table
from .page import (
    MARK,
    code,
    escape,
    facts_lines,
    finding_lines,
    first_rows,
    folded,
    limit_lines,
    paragraph,
    python_lines,
    table_lines,
)

TOP = 4
"""Level of the headings of sections."""


def render(document: Document) -> str:
    """The whole text; ends with a line break."""
    lines = [MARK, "", f"### {escape(document.headline)}", "", *blocks_lines(document.blocks, TOP)]
    return "\n".join(lines).rstrip() + "\n"


def blocks_lines(blocks: Sequence[Block], level: int) -> list[str]:
    """Blocks below each other; an empty line ends each but a finding that another one follows."""
    lines: list[str] = []
    for at, block in enumerate(blocks):
        lines += _lines(block, level)
        if isinstance(block, Finding) and not isinstance(_next(blocks, at), Finding):
            lines.append("")
    return lines


def _next(blocks: Sequence[Block], at: int) -> Block | None:
    return blocks[at + 1] if at + 1 < len(blocks) else None


def _lines(block: Block, level: int) -> list[str]:
    match block:
        case Section():
            return _section(block, level)
        case Paragraph():
            return [_paragraph(block), ""]
        case Facts():
            return [*facts_lines(block.facts), ""]
        case Grid():
            legend = block.whole_legend
            return [*table_lines(block.table), *([paragraph(legend), ""] if legend else [])]
        case LongTable():
            return table_lines(first_rows(block))
        case Table():
            return table_lines(block)
        case Finding():
            return finding_lines(block)
        case LimitText():
            return limit_lines(block)
        case Code():
            return [*python_lines(block.text), ""]
        case Command():
            return [f"**{escape(block.label)}:** {code(block.text)}", ""]
        case Charts():
            return []


def _section(section: Section, level: int) -> list[str]:
    """The title and what is below it; nothing where nothing of it is for a file of text."""
    if section.shown == "window":
        return []
    inner = level if section.folded or not section.title else level + 1
    lines = blocks_lines(section.blocks, inner)
    if not lines or not section.title:
        return lines
    if section.folded:
        return folded(section.title, lines[:-1])
    return [f"{'#' * level} {escape(section.title)}", "", *lines]


def _paragraph(block: Paragraph) -> str:
    text = f"**{escape(block.label)}:** {escape(block.text)}" if block.label else ""
    text = text or paragraph(block.text)
    return f"> {text}" if block.tone == "warning" else text
