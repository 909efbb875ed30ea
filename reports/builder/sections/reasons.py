"""Why something of an answer is not known."""

from __future__ import annotations

from ....records import Advice


def why_unknown(advice: Advice, field: str, otherwise: str = "the record does not say why") -> str:
    """The reason that the advice gives for a field that it lacks, else the other words."""
    return advice.unavailable.get(field, otherwise)
