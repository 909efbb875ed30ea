"""The numbers behind a verdict or a finding, as a small table."""

from __future__ import annotations

from ....records import Evidence
from ...report import Column, Row, Table
from ...words.wording import clean, evidence_rows


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
