"""Several ranks are over: which of them failed by itself, and which only because of it."""

from __future__ import annotations

from collections.abc import Mapping

from ..process.endings import ENDED, WAITED, WorkerGone
from ..process.messages import Raised

_CONSEQUENCES = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "connection was aborted",
    "broken pipe",
    "socket timeout",
    "timed out waiting",
    "remote process exited",
    "unhandled system error",
    "ncclremoteerror",
    "watchdog caught",
    "failed to recv",
    "gloo",
)
"""What collectives say when another rank is gone, lower case."""

_ORDER = ("out_of_memory", "exception", "crashed", "no_step", "script_ended", "hung")


def cause_of(gone: Mapping[int, WorkerGone]) -> tuple[int, WorkerGone]:
    """The rank that failed first in the order of causes, and how.

    A rank out of memory explains the others' broken connections and hangs; a crash explains
    them too; a broken connection explains nothing, nor does a rank that we ended ourselves.
    """
    return min(gone.items(), key=lambda item: (_class(item[1]), item[0]))


def with_rank(rank: int, gone: WorkerGone) -> WorkerGone:
    """The same, saying which rank it was."""
    return WorkerGone(gone.outcome, f"rank {rank}: {gone.detail}", gone.message)


def port_was_taken(gone: WorkerGone) -> bool:
    """Whether somebody else took the agreed port before the script did."""
    text = gone.message.text.lower() if isinstance(gone.message, Raised) else ""
    return "eaddrinuse" in text or "address already in use" in text


def _class(gone: WorkerGone) -> int:
    if gone.outcome == "exception" and _is_consequence(gone):
        return len(_ORDER)
    if gone.detail == ENDED:
        return len(_ORDER) + 2
    if gone.outcome == "hung" and gone.detail.endswith(WAITED):
        return len(_ORDER) + 1
    return _ORDER.index(gone.outcome) if gone.outcome in _ORDER else len(_ORDER)


def _is_consequence(gone: WorkerGone) -> bool:
    text = gone.detail.lower()
    if isinstance(gone.message, Raised):
        text += gone.message.text.lower()
    return any(part in text for part in _CONSEQUENCES)
