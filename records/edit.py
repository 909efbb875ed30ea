"""Whether the change that an answer names does what it says."""

from __future__ import annotations

from .base import Count, Record
from .script import BatchSizeSource


class EditCheck(Record, frozen=True, kw_only=True):
    """The script, started with the line changed; the file stayed as it is.

    Attributes:
        size: that was written there.
        arrived: the size of the batches of its first steps; `None` where it was not started, or did
            not come so far.
        micro_batches: of each of these steps.
        also: another place that had to be changed for it, and was.
        reason: why nothing arrived; empty where something did.
    """

    size: Count
    arrived: Count | None = None
    micro_batches: Count = 1
    also: BatchSizeSource | None = None
    reason: str = ""

    @property
    def did(self) -> bool:
        """Whether the size arrived."""
        return self.arrived == self.size
