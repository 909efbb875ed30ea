"""Outcomes of a trial in words."""

from __future__ import annotations

from ...records import Outcome

OUTCOMES: dict[Outcome, tuple[str, str]] = {
    "ok": ("ok", "ok"),
    "out_of_memory": ("out of memory", "OOM"),
    "crashed": ("crashed", "crash"),
    "hung": ("hung", "hung"),
    "exception": ("exception", "error"),
    "wrong_size": ("wrong size", "size"),
    "no_step": ("no optimizer step", "no step"),
    "script_ended": ("script ended", "ended"),
    "interrupted": ("interrupted", "stop"),
}
"""Outcomes in words: with room and without."""


def spoken(word: str) -> str:
    """An outcome in words."""
    return word.replace("_", " ")
