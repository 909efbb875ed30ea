"""The error tree. Every error says what happened, why, and what to do.

    BatchAdvisorError
    ├── UsageError    exit code 2: the command cannot work as typed
    └── RunError      exit code 1: the command was right, the run failed
        ├── ScriptError           the user's script raised; carries its own traceback
        └── InterruptedRunError   exit code 130: Ctrl-C, from the Python functions only

Raised anywhere, caught once, in `cli.main`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .records import FileTouched

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it (128 + SIGINT)."""
INTERRUPTED_BY = (INTERRUPTED, 143, 129)
"""Exit codes after Ctrl-C, SIGTERM and SIGHUP."""


class BatchAdvisorError(Exception):
    """An error with a remedy.

    Args:
        what: what happened and why, one line; what it quotes last may bring a full stop,
            another mark that ends a sentence, or a colon.
        remedy: what to do about it, one line.

    Attributes:
        files: what the script itself had done to files by then.
    """

    exit_code = 1
    files: Sequence[FileTouched] = ()

    def __init__(self, what: str, remedy: str = "") -> None:
        what = re.sub(r"(?<!\.)\.\s*\.$|:\.$", ".", re.sub(r"([!?])\.$", r"\1", what))
        super().__init__(what)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what} {self.remedy}".strip()

    def _render_traceback_(self) -> list[str]:
        """Shows the error in IPython without any of our frames."""
        return [*self._script_lines(), f"{type(self).__name__}: {self}"]

    def _script_lines(self) -> list[str]:
        return []


class UsageError(BatchAdvisorError):
    """The command cannot work as it was typed."""

    exit_code = 2


class RunError(BatchAdvisorError):
    """The command was right; the run failed."""


class ScriptError(RunError):
    """The user's script raised an exception.

    Args:
        what: one line that names the exception.
        remedy: what to do about it.
        script_traceback: the script's own traceback, without frames of this package.
    """

    def __init__(self, what: str, remedy: str = "", script_traceback: str = "") -> None:
        super().__init__(what, remedy)
        self.script_traceback = script_traceback

    def _script_lines(self) -> list[str]:
        return [self.script_traceback] if self.script_traceback else []


class InterruptedRunError(RunError):
    """The run was interrupted; what was measured is in its record on disk."""

    exit_code = INTERRUPTED
