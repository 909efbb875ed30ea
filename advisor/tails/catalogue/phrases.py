"""Phrases that the words of several cases share."""

from __future__ import annotations

from ....records import Evidence, Pipeline
from ....units import format_count

Said = tuple[str, tuple[Evidence, ...]]
"""The message of a case and the evidence behind it."""


def say(message: str, *evidence: Evidence) -> Said:
    """A message with its evidence."""
    return message, evidence


def counted(count: int) -> str:
    """A number of samples."""
    return "1 sample" if count == 1 else f"{format_count(count)} samples"


def of_all(count: int, pipeline: Pipeline) -> str:
    """So many samples of all."""
    return f"{format_count(count)} of {format_count(pipeline.num_samples or 0)} samples"


def others(count: int) -> str:
    """How many more there are beside one."""
    return format_count(count - 1)
