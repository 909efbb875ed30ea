"""What was tried, as a table and as findings: every format shows these."""

from __future__ import annotations

import msgspec

from ...reports.report import Column, Finding, Report, Row, Table
from ...reports.words.wording import clean
from .records import Remedies, TriedRemedy
from .words import gain_text, in_order, loss_text, memory_text, message_of, notes_of, where_of

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
    together = remedies.together
    gained = [each for each in in_order(remedies) if each.outcome == "gain"]
    if together is not None and together.outcome == "gain":
        gained = [together, *gained]
    return tuple(
        Finding(
            severity="info",
            message=clean(message_of(each, confirmed=each is together)),
            remedy=clean(where_of(each)),
            code=tuple(clean(line) for line in each.code),
        )
        for each in gained
    )
