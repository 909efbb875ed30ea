"""What `batchadvisor memory` answers: as text, as JSON, or as a file."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import msgspec

from ...records import MemoryAnalysis
from ...reports.builder.memory import build_memory_page
from ...session.memory import write_memory_report


def memory_json(analysis: MemoryAnalysis) -> str:
    """The output of `--json`."""
    return msgspec.json.format(msgspec.json.encode(analysis), indent=1).decode()


def memory_text(
    analysis: MemoryAnalysis, path: Path, *, whole: bool, width: int, color: bool
) -> str:
    """The output of the command."""
    from ...reports.terminal.document import render

    return render(
        build_memory_page(analysis, whole=whole),
        next_command=f"batchadvisor memory {shlex.quote(str(path))} -o memory.html",
        width=width,
        color=color,
        encoding=sys.stdout.encoding or "ascii",
    ).rstrip("\n")


def write_memory(analysis: MemoryAnalysis, path: Path) -> None:
    """Writes the report whole or not at all; the suffix chooses the format.

    Raises:
        RunError: it cannot be written.
    """
    write_memory_report(lambda: build_memory_page(analysis), memory_json(analysis), path)
