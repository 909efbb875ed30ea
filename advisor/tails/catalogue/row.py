"""One row of the catalogue of cases."""

from __future__ import annotations

from ....records import Case, Severity


def case(  # noqa: PLR0917  # a row of the table
    number: int,
    name: str,
    severity: Severity,
    title: str,
    what: str,
    advice: str,
    *remedies: str,
) -> Case:
    """A case; `number` orders the catalogue, `remedies` are names of tails/remedies.py."""
    return Case(
        id=name,
        number=number,
        severity=severity,
        title=title,
        what=what,
        advice=advice,
        fixes=remedies,
    )
