"""Finds refusals of memory in a text: an exception's words, a traceback, the end of a log."""

from __future__ import annotations

import builtins
import re
from typing import NamedTuple

_SURE = (
    "can't allocate memory",
    "cannot allocate memory",
    "could not create a primitive",
    "could not create a memory object",
    "::bad_alloc",
    "c10::outofmemoryerror",
    "rmm::out_of_memory",
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
    "cl_mem_object_allocation_failure",
    "cl_out_of_host_memory",
    "is killed by signal: killed",  # a data worker, by the kernel
)
"""Parts of messages by which allocators say no, lower case."""

_REFUSED = re.compile(
    # torch's device allocators, before and after `AcceleratorError`; the CUDA runtime with its
    # number, as THC, NCCL (`Cuda failure 2 'out of memory'`) and CUTLASS print it
    r"\b(?:cuda|hip|xpu|npu|hpu|mtia|mps backend|device)(?: driver| runtime)?(?: error| failure)?"
    r"[ :]*(?:\(?\d+\)?[ :]*)?['\"]?out of memory\b"
    # third_party/{nvidia,amd}/backend/driver.c of Triton; AMD's has the misspelt "Messsage: "
    r"|\btriton error \[(?:cuda|hip)\]:(?: +code: 2, mess+age:)? out of memory"
    r"|\b(?:cuda|hip)(?:malloc|hostalloc|hostmalloc|memcreate)\w*\b.{0,80}\bout of memory"
    r"|\bfailed to cuda (?:host )?(?:calloc|malloc|alloc)"  # NCCL's alloc.h
    r"|^error out of memory at line \d"  # bitsandbytes' CUDA_CHECK_RETURN, which then exits
    # Unified Runtime, Level Zero and its older plugin interface, of SYCL and so of torch.xpu
    r"|\b(?:ur|ze|pi)(?:_result)?_error_(?:out_of_(?:device|host)_memory"
    r"|mem_object_allocation_failure)\b|\b(?:level_zero|opencl) backend failed with error: 3[89]\b"
    # c10's allocators read the driver's list of processes to word their refusal: where there is
    # none (Jetson, MIG, containers), the assertion stands in its place
    r"|\b(?:nvml|rsmi|amdsmi)_\w*success\b.{0,120} internal assert failed at .{0,160}allocator"
    # without its words, which may be in another language: the number of ENOMEM
    r"|\bunable to mmap \d+ bytes from file .*\(12\)|\bdefaultcpuallocator: .*error code 12\b",
    re.MULTILINE,
)
"""The words of one refusal, lower case."""

_NO_ROOM = "no space left on device"
"""Text of a full disk or a full /dev/shm (`unable to allocate shared memory(shm) for file
</torch_...>`)."""

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
    "error_out_of_resources",
    "backend failed with error: 40",  # the same of SYCL, cut before its name
    "nvml_success == ",
)
"""Messages of libraries that find no memory for themselves, and that have other causes too."""

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
_LAUNCHERS = re.compile(
    r"^(?:\[(?:rank|default)?\d+(?:,\d+)?\](?:<std\w+>)?: ?|\(\w+(?:\([^)]*\))? pid=[^)]*\) ?"
    r"|\d+: )"
)
"""Prefixes that torch, torchrun, mpirun, Ray and srun put before the lines of a rank."""
_GROUP = re.compile(r"^\s*(?:[|+] ?)+")
_TRACEBACK = re.compile(r"^\s*(?:Original |Exception Group )?Traceback\b|^Caught \w+ in | raised:$")
_HEAD = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*(?:Error|Exception|Exit|Interrupt))(?:: |:?$)"
)
_LINK = re.compile(r"^(?:During handling of the above|The above exception was)")
_TYPES = re.compile(
    r"^(?:MemoryError|torch\.(?:cuda\.)?OutOfMemoryError"
    r"|(?:tensorflow|jaxlib|jax|cupy)\.(?:\w+\.)*(?:ResourceExhaustedError|OutOfMemoryError))"
    r"(?::|$)|^Fatal Python error: .*\bout of memory"
)
"""Classes that mean nothing else, as a traceback prints them."""
_NOISE = re.compile(
    r"^\s|^$|^(?:Current thread|Thread) 0x|^Stack \(most recent|^frame #\d|^Extension modules: "
    r"|^Fatal Python error: (?:Aborted|Segmentation fault)$|^Exception raised from "
    r"|resource_tracker: |^Aborted\b|^\*\*\*|^--------|\d%\|.*\|"
)
"""Lines below the last words of a process: stacks and progress bars."""
_LAST_LINES = 12
_PINNING = re.compile(r"^Caught \w+ in (pin memory thread(?: for device \w+)?)", re.MULTILINE)
_WHAT = re.compile(r"^\s*what\(\): *(.+)$")


class Said(NamedTuple):
    """One exception of a traceback that stands in a text.

    Attributes:
        line: its first, as printed.
        words: its message, to the end of it.
        by_script: whether a `raise` outside installed packages chose the words.
    """

    line: str
    kind: str
    words: str
    by_script: bool


def plain(text: str) -> str:
    r"""A text without colours, and without what launchers put before the lines of a rank.

    >>> plain("[rank1]: \x1b[31mRuntimeError\x1b[0m: CUDA error: out of memory")
    'RuntimeError: CUDA error: out of memory'
    """
    lines = _ANSI.sub("", text).replace("\r", "\n").split("\n")
    return "\n".join(_GROUP.sub("", _LAUNCHERS.sub("", line)) for line in lines)


def exceptions_in(text: str) -> list[Said]:
    """The exceptions of the tracebacks inside a text, in their order; none where it holds none.

    Data workers, the pinning thread, pools, ranks and compilers hand an exception on as text.
    """
    lines = plain(text).split("\n")
    found: list[Said] = []
    start = next((at for at, line in enumerate(lines) if _TRACEBACK.search(line)), len(lines))
    for at, line in enumerate(lines[start:], start):
        head = _HEAD.match(line)
        if head is None:
            continue
        rest = lines[at + 1 :]
        ends = (
            number
            for number, after in enumerate(rest)
            if _TRACEBACK.search(after) or _LINK.match(after) or _HEAD.match(after)
        )
        words = "\n".join([line[head.end() :], *rest[: next(ends, len(rest))]]).strip()
        found.append(Said(line.strip(), head.group(1), words, _raised_outside(lines[:at])))
    return found


def _raised_outside(before: list[str]) -> bool:
    """Whether the last frame above an exception stands at a `raise` of the user's own."""
    for at in range(len(before) - 1, -1, -1):
        if before[at].lstrip().startswith('File "'):
            code = before[at + 1].strip() if at + 1 < len(before) else ""
            own = "site-packages" not in before[at] and "dist-packages" not in before[at]
            return own and code.startswith("raise ")
        if before[at] and not before[at].startswith(" "):
            return False
    return False


def refusing_line(text: str, *, short: bool = False) -> str:
    """The line of a text by which memory was refused; empty without one.

    Args:
        short: the device was nearly full, or its allocator had refused something; then words that
            do not say why count too.
    """
    for line in plain(text).split("\n"):
        if _says_no(line, short=short):
            return line.strip()
    return ""


def _says_no(line: str, *, short: bool = False) -> bool:
    lower = line.lower()
    if _NO_ROOM in lower:
        return False
    if _REFUSED.search(lower) or any(part in lower for part in _SURE):
        return True
    return short and any(part in lower for part in _PERHAPS)


def refusal_inside(text: str, *, short: bool = False) -> str:
    """The line by which an exception of a traceback inside a text refused memory, or empty."""
    for said in exceptions_in(text):
        if _TYPES.match(said.line):
            return said.line
        if not said.by_script and _believed(said.kind) and refusing_line(said.words, short=short):
            return refusing_line(said.words, short=short)
    return ""


def _believed(kind: str) -> bool:
    """Whether words of memory are believed from a class of this name.

    torch raises RuntimeError and classes of its own, a fork without memory OSError.
    """
    known = getattr(builtins, kind, None)
    return known is None or issubclass(known, (RuntimeError, OSError, MemoryError))


def last_refusal(log: str) -> str:
    """The line by which a process said, last of all, that it was refused memory; else empty.

    Args:
        log: the end of what a process printed that ended without a word to us.
    """
    ranks: dict[str, list[str]] = {}
    for line in _ANSI.sub("", log).replace("\r", "\n").split("\n"):
        prefix = _LAUNCHERS.match(line)
        words = plain(line)
        if _WHAT.match(words) or not _NOISE.search(words):
            ranks.setdefault(prefix.group() if prefix else "", []).append(words)
    said = (_last_refusal(lines[-_LAST_LINES:]) for lines in ranks.values())
    return next(filter(None, said), "")


def _last_refusal(lines: list[str]) -> str:
    """Finds the last refusal in the lines of one rank; empty without one."""
    other = False
    for line in reversed(lines):
        words = _WHAT.sub(r"\1", line).strip()
        head = _HEAD.match(words)
        if other:  # another exception came later; a refusal counts if that came from it
            other = not _LINK.match(words)
        elif _TYPES.match(words) or (
            (head is None or _believed(head.group(1))) and _says_no(words)
        ):
            return words
        else:
            other = head is not None
    return ""


def what_it_threw(log: str) -> str:
    """The message of a C++ exception that nobody caught, at the end of a log; else empty."""
    lines = plain(log).split("\n")
    at = max((n for n, line in enumerate(lines) if line.startswith("terminate called")), default=-1)
    found = (_WHAT.match(line) for line in lines[at + 1 :]) if at >= 0 else ()
    return next((match.group(1).strip() for match in found if match is not None), "")


def headline(text: str, *, refused: bool = False) -> str:
    """The line of a message that says what went wrong.

    Args:
        refused: memory was, and the line by which it was is wanted.

    >>> headline("CUDA error: out of memory\\nCompile with TORCH_USE_CUDA_DSA")
    'CUDA error: out of memory'
    >>> headline("Caught OSError in DataLoader worker process 0.\\nOriginal:\\nOSError: no space")
    'OSError: no space'
    >>> headline("NCCL error in: x.cpp:1\\nCuda failure 2 'out of memory'", refused=True)
    "Cuda failure 2 'out of memory'"
    """
    inside = exceptions_in(text)
    line = refusal_inside(text) or ("" if inside else refusing_line(text)) if refused else ""
    if not line:
        line = inside[-1].line if inside else (plain(text).strip().split("\n"))[0]
    pinning = _PINNING.search(plain(text))
    return f"{line} (in the {pinning.group(1)})" if pinning is not None else line
