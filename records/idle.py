"""What a trace says of the time in which a GPU stood still, beyond the shares."""

from __future__ import annotations

from .base import Record


class CallTime(Record, frozen=True, kw_only=True):
    """Calls of one name of the GPU's API in a window.

    Attributes:
        num_calls: how many began in it or lasted into it.
        share_pct: share of the window in which the host was inside one of them, on any thread.
        longest_s: the longest of them, its part in the window.
    """

    name: str
    num_calls: int
    share_pct: float
    longest_s: float


class LongestGap(Record, frozen=True, kw_only=True):
    """The longest time in which nothing at all ran on a GPU.

    Attributes:
        host_s: the part until the launch call of what ended it had returned.
        ended_by: name of the activity that ended it; empty at the window's end.
        launched_by: name of the call that launched this; empty where it is not in the trace.
    """

    gap_s: float
    host_s: float
    ended_by: str
    launched_by: str
