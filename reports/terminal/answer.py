"""The answer of one run as terminal text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from ..text import TextReport
from . import sections
from .page import Page
from .sizes import add_sizes


def render(
    text: TextReport,
    *,
    files: Sequence[tuple[str, str]],
    next_command: str,
    others: Sequence[str] = (),
    width: int,
    color: bool,
    encoding: str = "utf-8",
) -> str:
    """The whole report; arguments are those of a page of blocks, `document.render`."""
    page = Page(width, encoding)
    report = text.report
    add_verdict(page, text, text.report.reason, text.report.sureness)
    if text.report.change:
        _change(page, text)
    page.blank()
    page.pairs(sections.pairs_of(report.circumstances), indent=0)
    add_sizes(page, text.sizes)
    sections.add_training(page, text)
    if report.limit is not None:
        page.heading("What limits the step")
        sections.add_limit(page, report.limit)
    sections.add_memory(page, text.memory)
    sections.add_ranks(page, text)
    sections.add_tail(page, text)
    sections.add_tables(page, report.tables)
    sections.add_findings(page, report)
    sections.add_estimates(page, report)
    sections.add_touched(page, text.files)
    sections.add_ending(page, files, next_command, others)
    return page.render(color=color)


def add_verdict(page: Page, text: TextReport, reason: str, sureness: str) -> None:
    """The size, why, and how sure, the latter two in these words."""
    good = text.report.advice.recommended is not None
    page.entry(text.report.headline, style="bold green" if good else "bold red", indent=0)
    if reason:
        page.entry(reason, indent=0)
    if sureness:
        style = "" if text.sure else "yellow"
        page.entry(sureness + ".", label="Sureness: ", style=style, indent=0)


def _change(page: Page, text: TextReport) -> None:
    """The line to change; where it is too long, its parts stand below each other."""
    label, change = "Change: ", text.report.change
    fits = cell_len(label) + cell_len(page.safe(change)) <= page.width
    for part in [change] if fits else text.change:
        page.entry(part, label=label, style="bold", indent=0)
        label = " " * len(label)
