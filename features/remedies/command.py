"""`batchadvisor run --try`: the command's part of it, which `cli/run.py` finds by name."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from ...errors import UsageError
from ...session.display import Display
from ...session.pages import terminal_text
from ...session.run import RunResult
from ...session.setup.options import RunOptions
from .page import build_remedies
from .records import Remedies
from .store import DIFF
from .trying import names_of, try_remedies, why_not


def check(options: RunOptions) -> tuple[str, ...]:
    """The names in `--try`, before anything is measured.

    Raises:
        UsageError: one is unknown, or remedies cannot be tried of such a run.
    """
    names = names_of(options.tried)
    reason = why_not(options)
    if reason:
        raise UsageError(f"--try cannot be used here: {reason}.", "Leave it out.")
    return names


def after_run(
    options: RunOptions, result: RunResult, names: Sequence[str], display: Display
) -> Remedies:
    """Tries them; whatever happens, the answer of the run stands."""
    display.start()
    try:
        return try_remedies(options, result, names, display)
    finally:
        display.close()


def text(remedies: Remedies, folder: Path, *, width: int, color: bool) -> str:
    """What came of it, for a terminal."""
    place = shlex.quote(str(folder))
    return terminal_text(
        build_remedies(remedies, diff=shlex.quote(str(folder / DIFF))),
        next_command=f"batchadvisor report {place} -o report.html",
        width=width,
        color=color,
    )
