"""What was tried, as a table and as findings: every format shows these."""

from __future__ import annotations

import msgspec

from ...reports.blocks import Block, Command, Document, Paragraph, Section
from ...reports.report import Column, Finding, Report, Row, Table
from ...reports.words.wording import clean
from .records import Remedies, TriedRemedy
from .words import (
    all_gained,
    gain_text,
    headline,
    in_order,
    loss_text,
    memory_text,
    message_of,
    notes_of,
    where_of,
)

COLUMNS = (
    Column(title="remedy", left=True),
    Column(title="gain", left=True),
    Column(title="peak", left=True),
    Column(title="loss", left=True),
)


def with_remedies(report: Report, remedies: Remedies) -> Report:
    """The report of a run with what was tried after it."""
    return msgspec.structs.replace(
        report,
        tables=(*report.tables, table_of(remedies)),
        findings=(*findings_of(remedies), *report.findings),
    )


def build_remedies(remedies: Remedies, *, diff: str = "") -> Document:
    """What was tried, and the code of what is worth writing.

    Args:
        diff: path of what is to be written, as a diff, as a shell takes it.
    """
    table = table_of(remedies)
    sections = [Section(title=table.title, blocks=(table,))]
    for best in all_gained(remedies)[:1]:
        blocks: list[Block] = [_finding(best, remedies)]
        if best.diff and diff:
            label = "As a diff, at the root of the repository"
            blocks.append(Command(label=label, text=f"git apply {diff}"))
        elif best.no_diff:
            blocks.append(Paragraph(label="As a diff", text=clean(f"none, for {best.no_diff}")))
        sections.append(Section(blocks=tuple(blocks)))
    return Document(
        title=table.title,
        headline=clean(f"Remedies: {headline(remedies)}."),
        blocks=tuple(sections),
    )


def table_of(remedies: Remedies) -> Table:
    """One row for each remedy that ran; what did not run, and why, in notes."""
    every = in_order(remedies)
    together = (remedies.together,) if remedies.together is not None else ()
    ran = [each for each in (*together, *every) if each.gain is not None]
    return Table(
        title=f"Remedies tried at batch {remedies.batch_size}",
        columns=COLUMNS,
        rows=tuple(row_of(each) for each in ran),
        notes=tuple(clean(note) for note in notes_of(remedies)),
    )


def row_of(tried: TriedRemedy) -> Row:
    """Remedy, gain, memory, numbers."""
    return Row(
        cells=(
            clean(tried.change),
            gain_text(tried),
            memory_text(tried),
            loss_text(tried.numbers),
        ),
        marks=("recommended",) if tried.outcome == "gain" else (),
        state="failed" if tried.outcome == "wrong numbers" else "ok",
    )


def findings_of(remedies: Remedies) -> tuple[Finding, ...]:
    """One finding for all that gained together, or for each that did; with the code to write."""
    return tuple(_finding(each, remedies) for each in all_gained(remedies))


def _finding(tried: TriedRemedy, remedies: Remedies) -> Finding:
    return Finding(
        severity="info",
        message=clean(message_of(tried, confirmed=tried is remedies.together)),
        remedy=clean(where_of(tried)),
        code=tuple(clean(line) for line in tried.code),
    )
