"""The part of a report on what limits the step."""

from __future__ import annotations

from ....records import Verdict
from ...report import LimitText
from ...words.larger import larger_text
from ...words.wording import clean, evidence_text
from .evidence import evidence_table


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
