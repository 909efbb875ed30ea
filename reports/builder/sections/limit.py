"""What limits the step, and the numbers behind a verdict or a finding."""

from __future__ import annotations

from ....records import Evidence, Verdict
from ...report import Column, LimitText, Row, Table
from ...words.larger import larger_text
from ...words.wording import clean, evidence_rows, evidence_text


def limit_text(verdict: Verdict, rate: str = "samples per second") -> LimitText:
    """A verdict in words, without the shares that it rests on.

    Args:
        rate: what a larger batch may gain.
    """
    return LimitText(
        limit=verdict.limit,
        message=clean(verdict.message),
        evidence=clean(evidence_text(verdict.evidence, verdict.message)),
        numbers=evidence_table(verdict.evidence, verdict.message),
        larger=larger_text(verdict, rate),
        remedy=clean(verdict.remedy),
    )


def evidence_table(evidence: tuple[Evidence, ...], message: str) -> Table | None:
    """A row for each number; `None` where a sentence says one number as well."""
    rows = [tuple(map(clean, row)) for row in evidence_rows(evidence, message)]
    if len(rows) < 2:
        return None
    return Table(
        title="Evidence",
        columns=(
            Column(title="evidence", left=True), Column(title="measured"),
            Column(title="threshold"),
        ),
        rows=tuple(Row(cells=(name, value, threshold or "-")) for name, value, threshold in rows),
    )  # fmt: skip
