"""What limits the step, whether a larger batch helps, and the numbers behind what is said."""

from __future__ import annotations

from ....records import Evidence, Verdict
from ...report import Column, LimitText, Row, Table
from ...words.wording import clean, evidence_rows, evidence_text

SMALL_GAIN = 1.01
"""A bound up to this leaves nothing to gain."""
LARGE_GAIN = 10
"""A bound above this says only that it binds nothing."""
LARGER = {
    "helps": "A larger batch helps",
    "does not help": "A larger batch does not help",
    "unknown": "Whether a larger batch helps is not known",
}


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


def larger_text(verdict: Verdict, rate: str = "samples per second") -> str:
    """Whether a larger batch helps, and what bounds its gain.

    The bound is what a batch without end would reach if all that a step costs whatever its size
    were spread over it; it is no forecast, and one above 1 does not say that a larger batch helps.

    Args:
        rate: what the gain is one of.
    """
    text, most = LARGER[verdict.larger_batch], verdict.gain_at_most
    helpless = verdict.larger_batch == "does not help"
    if most is None or (helpless and not SMALL_GAIN < most <= LARGE_GAIN):
        return f"{text}."
    if helpless:
        return (
            "A larger batch is not what helps: what it could spread over more samples is worth at "
            f"most x{most:.2f} {rate}, an estimate."
        )
    if most > LARGE_GAIN:
        return f"{text}: what was measured would allow more than x{LARGE_GAIN} {rate}."
    if verdict.larger_batch == "unknown":
        return f"{text}; if it does, by at most x{most:.2f} {rate}, an estimate."
    return f"{text}, by at most x{most:.2f} {rate}, an estimate."
