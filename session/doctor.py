"""`batchadvisor doctor`: what is there for a run, what is not, and why."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..probes.devices.checkup import checks
from ..records import Checkup
from .pages import terminal_text


def checkup() -> Checkup:
    """Looks at this machine, and at the working folder, where runs would be written."""
    try:
        folder = Path.cwd()
    except OSError:  # somebody removed it: the check of it says so
        folder = Path()
    return Checkup(checks=checks(folder))


def checkup_text(result: Checkup, *, width: int) -> str:
    """The output of `doctor`."""
    from ..reports.builder.checkup import build_checkup

    return terminal_text(build_checkup(result), width=width).rstrip("\n")


def checkup_json(result: Checkup) -> str:
    """The output of `doctor --json`."""
    data = {"works": result.works, **msgspec.to_builtins(result)}
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
