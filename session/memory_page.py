"""A page of where the memory goes, in the folder of a run that met an out-of-memory error."""

from __future__ import annotations

from pathlib import Path

from ..advisor.advise import advise
from ..errors import BatchAdvisorError
from ..records import MemoryAnalysis, RunRecord
from .recording.store import MEMORY_PAGE, write_whole


def write_memory_page(record: RunRecord, folder: Path, snapshot: Path | None = None) -> str:
    """Leaves the page in the folder.

    Args:
        snapshot: what torch's recorder wrote, if anything.

    Returns:
        What went wrong; empty if nothing did.
    """
    from ..reports.builder.sections.memory import memory_page
    from ..reports.html.document import render

    path = folder / MEMORY_PAGE
    analysis, problem = _analysis(snapshot)
    try:
        page = memory_page(record, advise(record).recommended, analysis)
        write_whole(path, render(page).encode())
    except OSError as error:
        return f"{path} could not be written: {error.strerror or error}"
    return problem


def _analysis(snapshot: Path | None) -> tuple[MemoryAnalysis | None, str]:
    if snapshot is None:
        return None, ""
    from .memory import analyze_memory

    try:
        return analyze_memory(snapshot), ""
    except BatchAdvisorError as error:
        return None, f"torch's snapshot could not be read: {error.what}"
