"""Whether a larger batch helps, in words."""

from __future__ import annotations

from ..records import Verdict

LARGE_GAIN = 10
"""A bound above this says only that it binds nothing."""
LARGER = {
    "helps": "A larger batch helps",
    "does not help": "A larger batch does not help",
    "unknown": "Whether a larger batch helps is not known",
}


def larger_text(verdict: Verdict) -> str:
    """Whether a larger batch helps, and by how much at most."""
    text = LARGER[verdict.larger_batch]
    most = verdict.gain_at_most
    if most is None:
        return f"{text}."
    if most > LARGE_GAIN:
        return f"{text}: the trace alone would allow more than x{LARGE_GAIN} samples per second."
    return f"{text}: at most x{most:.2f} samples per second, an estimate."
