"""What an exception or an exit means, and the script's traceback without our frames."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import traceback
from collections.abc import Iterator

from ...records import Outcome
from ..source.call_site import is_own, is_users

_MEMORY_TEXTS = (
    "can't allocate memory",
    "cannot allocate memory",
    "could not create a primitive",
    "could not create a memory object",
    "std::bad_alloc",
    "unable to allocate",
    "cublas_status_alloc_failed",
    "cusolver_status_alloc_failed",
    "cusparse_status_alloc_failed",
    "cudnn_status_alloc_failed",
    "cudnn_status_internal_error_host_allocation_failed",
    "cudnn_status_internal_error_device_allocation_failed",
    "cufft_alloc_failed",  # pytorch/pytorch issue 6511
    "curand_status_allocation_failed",
    "hipblas_status_alloc_failed",  # ROCm/TheRock issue 1708
    "hipfft_alloc_failed",
    "hipsolver_status_alloc_failed",
    "hipsparse_status_alloc_failed",
    "rocblas_status_memory_error",
    "miopenstatusallocfailed",
    "memory not available to allocate buffer",  # MIOpen's handlehip.cpp, ROCm/MIOpen issue 47
    "cuda_error_out_of_memory",
    "cudaerrormemoryallocation",
    "hiperroroutofmemory",
    "resource_exhausted: out of memory",
    "failed to cuda calloc",  # NCCL, which reports it as an unhandled CUDA error
    "is killed by signal: killed",  # a data worker, by the kernel
)
"""Parts of messages by which allocators say no, lower case. Typed errors come first."""

_REFUSED = re.compile(
    r"\b(cuda|hip|xpu|npu|hpu|mtia|mps backend|device)( driver)?( error:)? out of memory"
    # third_party/{nvidia,amd}/backend/driver.c of Triton; AMD's has the misspelt "Messsage: "
    r"|\btriton error \[(cuda|hip)\]:( +code: 2, mess+age:)? out of memory"
)
"""The words of torch's device allocators, lower case, before and after `AcceleratorError`, and of
Triton's drivers, which name the same error of the runtime."""

_NO_ROOM = "no space left on device"
"""Of a disk or of /dev/shm (`unable to allocate shared memory(shm) for file </torch_...>`)."""

_PERHAPS = (
    "cublas_status_not_initialized",
    "cublas_status_execution_failed",
    "cudnn_status_not_initialized",
    "cudnn_status_internal_error",
    "cudnn_status_execution_failed",
    "cudnn_status_not_supported",  # of batches that are too large, and of what it cannot do at all
    "cufft_internal_error",  # pytorch/pytorch issue 119420
    "hipblas_status_not_initialized",
    "miopenstatusinternalerror",
    "miopenstatusunknownerror",
    "unable to find an engine to execute",
    "unable to find a valid cudnn algorithm",
    "ncclunhandledcudaerror",
)
"""What libraries say when they find no memory for themselves, and for other reasons too."""

_MEMORY_TYPES = (RuntimeError, OSError)
"""Texts are believed only from these: torch raises RuntimeError, a fork without memory OSError."""

_TYPE_NAMES = ("ResourceExhaustedError", "OutOfMemoryError")
_TYPE_HOMES = ("tensorflow", "jaxlib", "jax", "cupy", "torch")
"""Classes of other frameworks that mean nothing else, by name, and where they come from."""

_FROM_DATA_WORKER = re.compile(r"^Caught (\w+) in (DataLoader worker|pin memory thread|replica)")

NEARLY_FULL = 0.95
"""Share of the device in use from which an unclear failure of a library is about memory."""


def is_out_of_memory(error: BaseException, *, short: bool = False) -> bool:
    """Whether memory was refused: by the exception's type, else by an allocator's own words.

    An error that the script raised itself while it handled such a refusal counts as well; words
    that the script chose itself do not.

    Args:
        short: the device was nearly full, or its allocator had refused something; then errors
            of libraries that do not say why count too.
    """
    return any(_refuses(cause, short=short) for cause in _chain(error))


def memory_is_short() -> bool:
    """Whether the GPU's allocator refused memory in this process, or the device is nearly full.

    Asked while the exception is alive, so that what it holds still counts.
    """
    import torch

    from ..devices.gpus_in_use import indices_in_use

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return False
    with contextlib.suppress(RuntimeError):  # a broken context answers nothing
        for index in range(torch.cuda.device_count()):
            if int(torch.cuda.memory_stats(index).get("num_ooms", 0)) > 0:
                return True
        for index in indices_in_use():
            free, total = torch.cuda.mem_get_info(index)
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
    if not isinstance(error, _MEMORY_TYPES) or _said_by_the_script(error):
        return False
    text = _own_words(error).lower()
    if _NO_ROOM in text:
        return False
    if _REFUSED.search(text) or any(part in text for part in _MEMORY_TEXTS):
        return True
    return short and any(part in text for part in _PERHAPS)


def headline(text: str) -> str:
    """The line of a message that says what went wrong: of a data worker's error the last.

    >>> headline("CUDA error: out of memory\\nCompile with TORCH_USE_CUDA_DSA")
    'CUDA error: out of memory'
    >>> headline("Caught OSError in DataLoader worker process 0.\\nOriginal:\\nOSError: no space")
    'OSError: no space'
    """
    lines = text.strip().splitlines() or [""]
    return lines[-1].strip() if _FROM_DATA_WORKER.match(text) else lines[0]


def _own_words(error: BaseException) -> str:
    """The message; of an error from a data worker its last line, not the lines of its code."""
    text = str(error)
    if not _FROM_DATA_WORKER.match(text):
        return text
    last = text.strip().rsplit("\n", 1)[-1]
    kind, _, words = last.partition(": ")
    return words if kind.rsplit(".", 1)[-1] in ("RuntimeError", "OSError", "MemoryError") else ""


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


_MEASURES = re.compile(
    r"/probes/(windows/\w+|devices/\w+|loader/(norm_inputs|model_inputs|token_\w+|lengths)"
    r"|worker/(trial_task|trial_checks|kept_steps))\.py$"
)
"""Files of ours that call no code of the script's: below them a library raises at our call."""
_BY_A_DEVICE = re.compile(r"\b(cuda|hip|xpu|nccl|cublas|cudnn)( \w+)? error", re.IGNORECASE)
"""In the words of errors of a step of the script's that the next call which waits raises."""


def raised_by_us(error: BaseException) -> bool:
    """Whether our own code raised it, or a library that a measurement of ours called.

    What comes through our code is the script's: between its call and a library's we only hand on.
    """
    ours = measures = False
    for frame, _ in traceback.walk_tb(error.__traceback__):
        name = frame.f_code.co_filename
        ours = is_own(name)
        if ours:
            measures = _MEASURES.search(name.replace(os.sep, "/")) is not None
        elif is_users(name):
            measures = False
    return (ours or measures) and not _BY_A_DEVICE.search(str(error))


_LAST_WORDS = (
    "terminate called after throwing an instance of 'std::bad_alloc'",
    "Fatal Python error: _PyObject_GC_New: out of memory",
    "MemoryError",
)
"""Last lines of a process that aborted because it had no memory left to do otherwise."""
_SHELL_KILLED = 128 + signal.SIGKILL


def outcome_of_exit(
    status: int, *, killed_for_memory: bool | None, last_words: str = ""
) -> tuple[Outcome, str]:
    """What an exit status of a worker means when the worker said nothing.

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
        lines = last_words.strip().splitlines()[-5:]
        if status == -signal.SIGABRT and any(line.startswith(_LAST_WORDS) for line in lines):
            return "out_of_memory", "the process aborted because it was refused memory (SIGABRT)"
        return "crashed", f"the process died by {name}"
    if status == 0:
        return "script_ended", "the script left through os._exit with exit code 0"
    return "crashed", f"the process left with exit code {status} in the middle of the loop"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
