"""What `batchadvisor doctor` found: one entry for each thing that a run needs or can use."""

from __future__ import annotations

from typing import Literal

from .base import Record

CheckState = Literal["ok", "absent", "broken"]


class Check(Record, frozen=True, kw_only=True):
    """One thing.

    Attributes:
        state: `absent` is normal on many machines; `broken` is there and does not work.
        detail: what it is, or why it is not there, in the words of whoever was asked.
        remedy: what to do, empty where nothing is amiss.
        needed: `run` does not work without it.
    """

    name: str
    state: CheckState
    detail: str
    remedy: str = ""
    needed: bool = False


class Checkup(Record, frozen=True, kw_only=True):
    """All of them, in the order in which they are shown."""

    checks: tuple[Check, ...]

    @property
    def works(self) -> bool:
        """Whether `run` would work here."""
        return all(check.state == "ok" for check in self.checks if check.needed)
