"""The page of `batchadvisor doctor`."""

from __future__ import annotations

from ...records import Checkup
from ..blocks import Document, Section
from ..report import Column, Row, RowState, Table
from ..words.wording import clean

ROW_STATES: dict[str, RowState] = {"ok": "ok", "absent": "doubtful", "broken": "failed"}
COLUMNS = (
    Column(title="what", left=True),
    Column(title="state", left=True),
    Column(title="found", left=True),
)


def build_checkup(checkup: Checkup) -> Document:
    """Whether `run` would work, then a row for each thing that was looked at."""
    bad = [check.name for check in checkup.checks if check.needed and check.state != "ok"]
    headline = "batchadvisor run works here."
    if bad:
        headline = f"batchadvisor run does not work here: {', '.join(bad)}."
    table = Table(
        title="What is here",
        columns=COLUMNS,
        rows=tuple(
            Row(
                cells=(
                    clean(check.name),
                    check.state,
                    clean(f"{check.detail} → {check.remedy}" if check.remedy else check.detail),
                ),
                state=ROW_STATES[check.state],
            )
            for check in checkup.checks
        ),
    )
    return Document(
        title="batchadvisor doctor",
        headline=clean(headline),
        tone="bad" if bad else "good",
        blocks=(Section(title=table.title, blocks=(table,)),),
    )
