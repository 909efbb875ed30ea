"""What an exception or an exit means, and the script's traceback without our frames."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import traceback
from collections.abc import Iterator

from ...records import Outcome
from ..source.call_site import is_own, is_users
from .refusals import exceptions_in, last_refusal, refusal_inside, refusing_line, what_it_threw

_MEMORY_TYPES = (RuntimeError, OSError)
"""Texts are believed only from these: torch raises RuntimeError, a fork without memory OSError."""

_TYPE_NAMES = ("ResourceExhaustedError", "OutOfMemoryError")
_TYPE_HOMES = ("tensorflow", "jaxlib", "jax", "cupy", "torch")
"""Classes of other frameworks that mean nothing else, by name, and where they come from."""

NEARLY_FULL = 0.95
"""Share of the device in use from which an unclear failure of a library is about memory. An H100's
refusals were all recognised with it, and nothing else was taken for one
(bench/results/gpu-probes_nvidia-h100-80gb-hbm3_2026-11-26.txt)."""


def is_out_of_memory(error: BaseException, *, short: bool = False) -> bool:
    """Whether memory was refused: by the exception's type, else by an allocator's own words.

    An error that the script raised itself while it handled such a refusal counts as well; words
    that the script chose itself do not.

    Args:
        short: the device was nearly full, or its allocator had refused something; then errors
            of libraries that do not say why count too.
    """
    return refusal_in(error, short=short) is not None


def refusal_in(error: BaseException, *, short: bool = False) -> BaseException | None:
    """The exception by which memory was refused, of those that led to this one; see above."""
    return next((cause for cause in _chain(error) if _refuses(cause, short=short)), None)


def memory_is_short() -> bool:
    """Whether the GPU's allocator refused memory in this process, or the device is nearly full.

    Asked while the exception is alive, so that what it holds still counts.
    """
    import torch

    from ..devices.gpus_in_use import indices_in_use

    for kind, indices in ((torch.cuda, indices_in_use()), (torch.xpu, None)):
        if not kind.is_initialized():
            continue
        with contextlib.suppress(RuntimeError, AttributeError):  # a broken context, an older torch
            every = range(kind.device_count())
            if any(int(kind.memory_stats(index).get("num_ooms", 0)) > 0 for index in every):
                return True
            for index in every if indices is None else indices:
                free, total = kind.mem_get_info(index)
                if free <= (1 - NEARLY_FULL) * total:
                    return True
    return False


def _refuses(error: BaseException, *, short: bool) -> bool:
    import torch

    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    kind = type(error)
    if kind.__name__ in _TYPE_NAMES and kind.__module__.split(".")[0] in _TYPE_HOMES:
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True  # in whatever language its words are
    if _said_by_the_script(error):
        return False
    text = str(error)
    if exceptions_in(text):
        return bool(refusal_inside(text, short=short))
    return isinstance(error, _MEMORY_TYPES) and bool(refusing_line(text, short=short))


def _said_by_the_script(error: BaseException) -> bool:
    """Whether a `raise` outside installed packages made this error: the words are its own.

    What torch or the system refused is raised below a call, in C or in a package.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return False
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or last.tb_lasti < 0:
        return False
    code = last.tb_frame.f_code
    if "site-packages" in code.co_filename or "dist-packages" in code.co_filename:
        return False
    import opcode

    return opcode.opname[code.co_code[last.tb_lasti]] == "RAISE_VARARGS"


def script_traceback(error: BaseException) -> str:
    """The traceback as plain Python would have printed it: no frame of ours, none of runpy."""
    whole = traceback.TracebackException.from_exception(error)
    seen: set[int] = set()
    queue: list[traceback.TracebackException | None] = [whole]
    while queue:
        exception = queue.pop()
        if exception is None or id(exception) in seen:
            continue
        seen.add(id(exception))
        exception.stack = traceback.StackSummary.from_list(
            [
                frame
                for frame in exception.stack
                if not is_own(frame.filename)
                and frame.filename not in ("<frozen runpy>", "<string>")
                and not frame.filename.endswith("/runpy.py")
            ]
        )
        queue += [exception.__cause__, exception.__context__]
    return "".join(whole.format())


def largest_tensor(error: BaseException) -> tuple[int, ...]:
    """The shape of the largest tensor that the frames of an exception hold; empty without one."""
    import torch

    largest: torch.Size | None = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        for value in tuple(frame.f_locals.values()):
            for one in value if isinstance(value, (tuple, list)) else (value,):
                shape = one.shape if isinstance(one, torch.Tensor) and not one.is_nested else None
                if shape is not None and (largest is None or shape.numel() > largest.numel()):
                    largest = shape
    return () if largest is None else tuple(map(int, largest))


_MEASURES = re.compile(
    r"/probes/(windows/\w+|devices/\w+|loader/(norm_inputs|model_inputs|token_\w+|lengths)"
    r"|worker/(trial_task|kept_steps))\.py$|/torch/utils/flop_counter\.py$"
)
"""Files of ours that call no code of the script's: below them a library raises at our call. So it
does below torch's counter of operations, which runs in a step that we count."""
_IN_PLACE = re.compile(r"/probes/(worker/saves|source/replaced)\.py$")
"""Files of ours that stand in place of calls of the system: its errors are for the script."""
_BY_A_DEVICE = re.compile(r"\b(cuda|hip|xpu|nccl|cublas|cudnn)( \w+)? error", re.IGNORECASE)
"""Words of errors of one step that a later call which waits raises."""


def raised_by_us(error: BaseException) -> bool:
    """Whether our own code raised it, or a library that a measurement of ours called.

    What comes through our code is the script's: between its call and a library's we only hand on.
    """
    ours = measures = False
    for frame, _ in traceback.walk_tb(error.__traceback__):
        name = frame.f_code.co_filename
        plain = name.replace(os.sep, "/")
        ours = is_own(name) and not (isinstance(error, OSError) and _IN_PLACE.search(plain))
        if not is_users(name) and _MEASURES.search(plain):
            measures = True
        elif ours or is_users(name):
            measures = False
    return (ours or measures) and not _BY_A_DEVICE.search(str(error))


_SHELL_KILLED = 128 + signal.SIGKILL


def outcome_of_exit(
    status: int, *, killed_for_memory: bool | None, last_words: str = ""
) -> tuple[Outcome, str]:
    """Finds the outcome from the exit status of a worker that said nothing.

    Args:
        status: as `subprocess` gives it; negative for a signal.
        killed_for_memory: whether the kernel counted an out-of-memory kill meanwhile; `None`
            where it counts none that we may see.
        last_words: the end of what it printed.
    """
    if status in (-signal.SIGKILL, _SHELL_KILLED):
        if killed_for_memory:
            return "out_of_memory", "the kernel killed the process for memory (SIGKILL)"
        if killed_for_memory is None:
            return "out_of_memory", (
                "the process was killed (SIGKILL), as the kernel does when memory runs out; "
                "no counter here confirms or denies it"
            )
        return "crashed", (
            "the process was killed (SIGKILL), and not by the kernel for memory: a batch system, "
            "a watcher of memory, or somebody did it"
        )
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        refusal = last_refusal(last_words) if status == -signal.SIGABRT else ""
        if refusal:
            what = "the process aborted because it was refused memory (SIGABRT)"
            return "out_of_memory", f"{what}: {refusal}"
        threw = what_it_threw(last_words) if status == -signal.SIGABRT else ""
        return "crashed", f"the process died by {name}{': ' + threw if threw else ''}"
    if status == 0:
        return "script_ended", "the script left through os._exit with exit code 0"
    return outcome_of_exit_code(
        f"the process left with exit code {status} in the middle of the loop", last_words
    )


def outcome_of_exit_code(what: str, last_words: str) -> tuple[Outcome, str]:
    """Finds the outcome from an exit code of failure, by the end of what was printed."""
    refusal = last_refusal(last_words)
    return ("out_of_memory", f"{what}: {refusal}") if refusal else ("crashed", what)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception, what it was raised from or while handling, and the members of a group."""
    seen: set[int] = set()
    queue: list[BaseException | None] = [error]
    while queue:
        one = queue.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        members = getattr(one, "exceptions", ())
        queue += [one.__cause__, one.__context__]
        if isinstance(members, tuple):
            queue += [member for member in members if isinstance(member, BaseException)]
