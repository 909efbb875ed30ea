"""The answer in a few lines of JSON, for programs that act on it: `--json=brief`."""

from __future__ import annotations

from typing import Literal

from .advice import Standing
from .base import Record, Spread
from .run import RunState

BRIEF_VERSION = "1.0"
"""Major.minor of the JSON: a minor version only adds fields."""


class Brief(Record, frozen=True, kw_only=True):
    """An answer, below 2 KB.

    Attributes:
        answer: the headline.
        size: that is recommended, `None` where none is; `own_size` is the script's.
        ratio: samples per second of `size` over those of `own_size`, with its interval.
        why: the rule that chose it, with its numbers.
        standing: how the size compares with the script's own.
        change: the line to change, in words.
        diff: the same as a unified diff for `git apply`, only where the script was started with the
            change and trained on batches of that size. No file was edited.
        next: the command that a user is likely to want now; empty where there is none, or where it
            is too long for this.
        record: path of the record.
        unavailable: why a field is `None`, or too long.
    """

    kind: Literal["brief"] = "brief"
    brief_version: str = BRIEF_VERSION
    state: RunState
    answer: str
    size: int | None
    own_size: int | None
    ratio: Spread | None
    why: str
    sureness: Literal["confirmed", "not confirmed", "measured once", "partial", "none"]
    standing: Standing
    change: str
    diff: str | None
    next: str
    record: str
    unavailable: dict[str, str]
