"""What a snapshot of torch's memory says, and reports of memory as files."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ..advisor.explain.memory_cuts import cuts_of
from ..advisor.gpu_memory.split_limit import limit_of, split_limit
from ..errors import BatchAdvisorError
from ..probes.memory.analysis import devices_of, notes_of
from ..probes.memory.snapshot import Snapshot, read_snapshot
from ..records import MemoryAnalysis, RunRecord, SnapshotDevice
from .pages import file_text
from .recording.store import MEMORY_PAGE, write_whole


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


def write_memory_page(record: RunRecord, folder: Path, snapshot: Path | None = None) -> str:
    """Leaves a page of where the memory goes in the folder of a run that had too little.

    Args:
        snapshot: what torch's recorder wrote, if anything.

    Returns:
        What went wrong; empty if nothing did.
    """
    from ..advisor.advise import advise
    from ..reports.builder.sections.memory import memory_page

    path = folder / MEMORY_PAGE
    analysis, problem = _analysis(snapshot)
    try:
        page = memory_page(record, advise(record).recommended, analysis)
        write_whole(path, file_text(page, markdown=False).encode())
    except OSError as error:
        return f"{path} could not be written: {error.strerror or error}"
    return problem


def _analysis(snapshot: Path | None) -> tuple[MemoryAnalysis | None, str]:
    if snapshot is None:
        return None, ""
    try:
        return analyze_memory(snapshot), ""
    except BatchAdvisorError as error:
        return None, f"torch's snapshot could not be read: {error.what}"
