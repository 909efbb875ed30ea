"""Asks NVML, one question a call; a refusal keeps the driver's own words.

The module `pynvml` of the package `nvidia-ml-py` is imported and initialised on the first question.
It is never shut down: other users of NVML in the same process count on it.
"""

from __future__ import annotations

import os
from typing import Any

_UNINITIALIZED = 1
_FUNCTION_NOT_FOUND = 13

_ready_in_process: int | None = None


class NvmlRefusedError(Exception):
    """NVML did not answer; the text is a reason for people, with the driver's own words.

    Args:
        reason: who refused and in which words.
        code: NVML's return code, or `None` when the question never reached the driver.
    """

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.code = code


def ask(function: str, *arguments: Any) -> Any:
    """The answer of one function of `pynvml`, by its name.

    Raises:
        NvmlRefusedError: no driver, no such function, or the driver refused.
    """
    _initialise()
    return _ask(function, *arguments)


def ask_either(newer: str, older: str, *arguments: Any) -> Any:
    """The answer of the newer function, or of the older one where the newer does not exist.

    Raises:
        NvmlRefusedError: as `ask`.
    """
    try:
        return ask(newer, *arguments)
    except NvmlRefusedError as refusal:
        if refusal.code != _FUNCTION_NOT_FOUND:
            raise
        return ask(older, *arguments)


def nvml_unavailable() -> str | None:
    """Why NVML cannot be used here, in the driver's words; `None` when it can."""
    try:
        _initialise()
    except NvmlRefusedError as error:
        return str(error)
    return None


def _initialise() -> None:
    """Initialises NVML once a process; a failure is tried again at the next question."""
    global _ready_in_process  # noqa: PLW0603 - the driver's state is one per process as well
    if _ready_in_process != os.getpid():
        _ask("nvmlInit")
        _ready_in_process = os.getpid()


def _ask(function: str, *arguments: Any) -> Any:
    try:
        import pynvml
    except ImportError as error:
        msg = f"the package nvidia-ml-py is not installed ({error})"
        raise NvmlRefusedError(msg) from error
    question = getattr(pynvml, function, None)
    if question is None:
        msg = f"{function}: the installed nvidia-ml-py does not have it"
        raise NvmlRefusedError(msg, _FUNCTION_NOT_FOUND)
    try:
        return question(*arguments)
    except pynvml.NVMLError as error:
        if error.value == _UNINITIALIZED:
            _forget()
        msg = f"{function}: {error} (NVML code {error.value})"
        raise NvmlRefusedError(msg, error.value) from error
    except pynvml.NVMLLibraryMismatchError as error:
        msg = f"{function}: the installed driver does not have it"
        raise NvmlRefusedError(msg, _FUNCTION_NOT_FOUND) from error
    except UnicodeDecodeError as error:
        msg = f"{function}: the answer is no text ({error.reason})"
        raise NvmlRefusedError(msg) from error


def _forget() -> None:
    """Somebody shut NVML down under us: initialise it again at the next question."""
    global _ready_in_process  # noqa: PLW0603
    _ready_in_process = None
