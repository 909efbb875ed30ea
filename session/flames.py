"""What a report reads of a run's traces: flame graphs, and stacks for other viewers."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

import msgspec

from ..errors import BatchAdvisorError, RunError, UsageError
from ..records import Flame, Goal, RunRecord, Stacks
from ..reports.report import Report, TraceFile

SPEEDSCOPE = ".speedscope.json"
GONE = "the trace is not in the run's folder any more."


def with_flames(report: Report, folder: Path, shown_from: Path | None = None) -> Report:
    """The report with flame graphs of the traces that hold Python's stacks, and with links.

    A trace that is gone or cannot be read is said in its place.

    Args:
        folder: of the record.
        shown_from: the folder of the page, from which its links lead.
    """
    devices = []
    for section in report.devices:
        trace = section.trace
        if trace is not None:
            path, flames = _inside(folder, trace.path), section.flames
            if path is None:
                trace = msgspec.structs.replace(trace, problem=GONE if trace.stacks else "")
            else:
                trace = msgspec.structs.replace(trace, href=_link(path, shown_from))
            if path is not None and trace.stacks:
                try:
                    flames = _flames(path)
                except BatchAdvisorError as error:
                    trace = msgspec.structs.replace(trace, problem=error.what)
            section = msgspec.structs.replace(section, trace=trace, flames=flames)  # noqa: PLW2901
        devices.append(section)
    return msgspec.structs.replace(report, devices=tuple(devices))


def stacks_of(
    record: RunRecord, folder: Path, goal: Goal | None = None
) -> tuple[Stacks, TraceFile]:
    """The stacks of the trace whose kernels a report shows, and which trace it is.

    Args:
        goal: another goal than the record's own: it may recommend another size.

    Raises:
        UsageError: no size was profiled, or its trace is gone, or holds nothing.
    """
    from ..advisor.advise import advise
    from ..probes.trace.flames import stacks_of as stacks
    from ..probes.trace.metrics import Analysis
    from ..probes.trace.reader import read_trace
    from ..reports.builder.run import build_report

    sections = build_report(record, advise(record, goal)).devices
    trace = next((section.trace for section in sections if section.trace is not None), None)
    if trace is None:
        raise UsageError(f"{folder}: no size of this run has a trace.", "Run without --no-profile.")
    path = _inside(folder, trace.path)
    if path is None:
        raise UsageError(f"{folder / trace.path}: {GONE}", "Run the script again.")
    found = stacks(Analysis(read_trace(path)))
    if not found.threads and not found.launched:
        raise UsageError(f"{path} holds no stack: no operator, no frame.", "Run it with --stacks.")
    return found, trace


def is_speedscope(path: Path) -> bool:
    """Whether the name asks for stacks in speedscope's format."""
    return path.name.lower().endswith(SPEEDSCOPE)


def write_stacks(stacks: Stacks, name: str, path: Path) -> None:
    """Writes stacks for speedscope, whole or not at all.

    Raises:
        RunError: the file cannot be written.
    """
    from ..reports.data.speedscope import render
    from .recording.store import write_whole

    try:
        write_whole(path, render(stacks, name).encode())
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror or error}."
        raise RunError(msg, "Name another file with -o.") from error


def _flames(path: Path) -> tuple[Flame, ...]:
    from ..probes.trace.flames import flames_of
    from ..probes.trace.metrics import Analysis
    from ..probes.trace.reader import read_trace

    return flames_of(Analysis(read_trace(path)))


def _inside(folder: Path, name: str) -> Path | None:
    """A file of the run; `None` where there is none, or the record names one somewhere else."""
    try:
        path = (folder / name).resolve()
        known = path.is_file() and path.is_relative_to(folder.resolve())
    except (OSError, ValueError):
        return None
    return path if known else None


def _link(path: Path, shown_from: Path | None) -> str:
    """The way from a page to a file; empty without a page, or where none leads there."""
    if shown_from is None:
        return ""
    try:
        way = os.path.relpath(path, shown_from.resolve())
        return "./" + quote(way.replace(os.sep, "/"))
    except (ValueError, UnicodeEncodeError):  # another drive; a name that is no text
        return ""
