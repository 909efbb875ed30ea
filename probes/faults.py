"""What an exception or an exit means, and the script's traceback without our frames."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Iterator

from ..records import Outcome
from .call_site import is_own

_MEMORY_TEXTS = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "could not create a primitive",
    "could not create a memory object",
    "std::bad_alloc",
    "unable to allocate",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
    "is killed by signal: killed",  # a data worker, by the kernel
    "insufficient shared memory",  # /dev/shm is too small for the batches in flight
    "cudnn_status_internal_error_host_allocation_failed",
)
"""Parts of messages by which allocators say no, lower case. Typed errors come first."""

_MEMORY_TYPES = (RuntimeError, OSError)
"""Texts are believed only from these: torch raises RuntimeError, a fork without memory OSError."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory was refused: by the exception's type, else by an allocator's own words.

    An error that the script raised itself while it handled such a refusal counts as well.
    """
    import torch

    for one in _chain(error):
        if isinstance(one, (MemoryError, torch.OutOfMemoryError)):
            return True
        text = str(one).lower()
        if isinstance(one, _MEMORY_TYPES) and any(part in text for part in _MEMORY_TEXTS):
            return True
    return False


def script_traceback(error: BaseException) -> str:
    """The traceback as plain Python would have printed it: no frame of ours, none of runpy."""
    whole = traceback.TracebackException.from_exception(error)
    seen: set[int] = set()
    queue: list[traceback.TracebackException | None] = [whole]
    while queue:
        one = queue.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.stack = traceback.StackSummary.from_list(
            [
                frame
                for frame in one.stack
                if not is_own(frame.filename)
                and frame.filename not in ("<frozen runpy>", "<string>")
                and not frame.filename.endswith("/runpy.py")
            ]
        )
        queue += [one.__cause__, one.__context__]
    return "".join(whole.format())


def raised_by_us(error: BaseException) -> bool:
    """Whether the exception comes from our own code, not through it."""
    last = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        last = frame.f_code.co_filename
    return last is not None and is_own(last)


def outcome_of_exit(status: int, *, killed_for_memory: bool | None) -> tuple[Outcome, str]:
    """What an exit status of a worker means when the worker said nothing.

    Args:
        status: as `subprocess` gives it; negative for a signal.
        killed_for_memory: whether the kernel counted an out-of-memory kill meanwhile; `None`
            where it counts none that we may see.
    """
    if status == -signal.SIGKILL:
        if killed_for_memory:
            return "out_of_memory", "the kernel killed the process for memory (SIGKILL)"
        if killed_for_memory is None:
            return "out_of_memory", (
                "the process was killed (SIGKILL), as the kernel does when memory runs out; "
                "no counter here confirms or denies it"
            )
        return "crashed", "the process was killed (SIGKILL), and not by the kernel for memory"
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return "crashed", f"the process died by {name}"
    return "crashed", f"the process left with exit code {status} in the middle of the loop"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
