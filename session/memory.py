"""`batchadvisor memory`: a snapshot of torch's memory that exists already."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from ..advisor.explain.memory_cuts import cuts_of
from ..advisor.gpu_memory.split_limit import limit_of, split_limit
from ..probes.memory.analysis import devices_of, notes_of
from ..probes.memory.snapshot import Snapshot, read_snapshot
from ..records import MemoryAnalysis, SnapshotDevice
from ..reports.builder.memory import build_memory_report
from ..reports.report import MemoryReport
from .recording.store import write_output


def analyze_memory(path: Path) -> MemoryAnalysis:
    """Reads a snapshot, without torch and without running anything in it.

    Raises:
        UsageError: it is no snapshot.
    """
    snapshot = read_snapshot(path)
    devices = tuple(_with_split_limit(device, snapshot) for device in devices_of(snapshot))
    return MemoryAnalysis(
        snapshot=os.fspath(path).encode("utf-8", "backslashreplace").decode(),
        file_bytes=snapshot.file_bytes,
        settings=snapshot.settings,
        devices=devices,
        cuts=tuple(cut for device in devices for cut in cuts_of(device)),
        notes=notes_of(snapshot),
    )


def _with_split_limit(device: SnapshotDevice, snapshot: Snapshot) -> SnapshotDevice:
    """The device with what `max_split_size_mb` costs it."""
    limit = limit_of(snapshot.settings)
    if limit is None:
        return device
    growing = [
        [(block.size, not block.active) for block in segment.blocks]
        for segment in snapshot.segments
        if segment.device == device.device and segment.expandable and segment.kind == "large"
    ]
    return msgspec.structs.replace(device, split_limit=split_limit(growing, limit))


def memory_json(analysis: MemoryAnalysis) -> str:
    """The output of `--json`."""
    return msgspec.json.format(msgspec.json.encode(analysis), indent=1).decode()


def memory_text(
    analysis: MemoryAnalysis, path: Path, *, whole: bool, width: int, color: bool
) -> str:
    """The output of the command."""
    from ..reports.terminal.memory import render

    return render(
        build_memory_report(analysis),
        whole=whole,
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
    write_memory_report(lambda: build_memory_report(analysis), memory_json(analysis), path)


def write_memory_report(report: Callable[[], MemoryReport], data: str, path: Path) -> None:
    """Writes a report whole or not at all; the suffix chooses the format.

    Args:
        report: makes it, for people.
        data: the same as JSON.

    Raises:
        RunError: it cannot be written.
    """
    suffix = path.suffix.lower()
    if suffix == ".json":
        text = data + "\n"
    elif suffix == ".md":
        from ..reports.markdown.memory import render as markdown

        text = markdown(report())
    else:
        from ..reports.html.memory import render as html

        text = html(report())
    write_output(path, text)
