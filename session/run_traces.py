"""What a report reads of a run's traces: flame graphs, pictures of steps, stacks for viewers."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from urllib.parse import quote

import msgspec

from ..errors import BatchAdvisorError, UsageError
from ..records import Flame, Goal, RunRecord, Stacks
from ..records.anatomy import TraceAnatomy
from ..reports.anatomy import Anatomies
from ..reports.report import Report, TraceFile
from .recording.store import write_output

SPEEDSCOPE = ".speedscope.json"
GONE = "the trace is not in the run's folder."
KEPT_TRACES = 16
"""Traces that are kept in memory as pages show them, which takes some megabytes each."""


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
                    flames, _ = _shown(path, trace.path)
                except BatchAdvisorError as error:
                    trace = msgspec.structs.replace(trace, problem=error.what)
            section = msgspec.structs.replace(section, trace=trace, flames=flames)  # noqa: PLW2901
        devices.append(section)
    return msgspec.structs.replace(report, devices=tuple(devices))


def pictures_of(report: Report, record: RunRecord, folder: Path) -> Anatomies:
    """The pictures of steps from the trace whose kernels the report shows, or why there are none.

    Args:
        report: made from the record.
        folder: of the record.
    """
    from ..reports.builder.anatomy import of_run

    trace = next((section.trace for section in report.devices if section.trace is not None), None)
    if trace is None:
        return of_run(None, TraceAnatomy(trace="", unavailable=_why_none(record)))
    trial = next(
        trial
        for trial in reversed(record.trials)
        if trial.profile is not None and trial.profile.trace == trace.path
    )
    path = _inside(folder, trace.path)
    if path is None:
        drawn = TraceAnatomy(trace=trace.path, unavailable=GONE.rstrip("."))
    else:
        try:
            _, drawn = _shown(path, trace.path)
        except BatchAdvisorError as error:
            why = f"the trace could not be read: {error.what}"
            drawn = TraceAnatomy(trace=trace.path, unavailable=why)
    ranks = 1 if record.distribution is None else record.distribution.world_size
    return of_run(trial, drawn, ranks)


def _why_none(record: RunRecord) -> str:
    """Why no trial has a trace."""
    reasons = [
        trial.profile.unavailable.get("*") or trial.profile.unavailable.get("trace")
        for trial in record.trials
        if trial.profile is not None
    ]
    return next((reason for reason in reasons if reason), "no size of this run was profiled")


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

    write_output(path, render(stacks, name))


def _shown(path: Path, name: str) -> tuple[tuple[Flame, ...], TraceAnatomy]:
    """The flame graphs of a trace and the pictures of its steps.

    Raises:
        UsageError: the trace cannot be read.
    """
    state = path.stat()
    return _read(path, name, state.st_size, state.st_mtime_ns)


@functools.lru_cache(maxsize=KEPT_TRACES)
def _read(
    path: Path, name: str, _size: int, _changed_ns: int
) -> tuple[tuple[Flame, ...], TraceAnatomy]:
    """Reads a trace once for all that a page shows of it; again when the file has changed."""
    from ..probes.trace.anatomy import anatomy_of
    from ..probes.trace.flames import flames_of
    from ..probes.trace.metrics import Analysis
    from ..probes.trace.reader import read_trace

    analysis = Analysis(read_trace(path))
    flames = flames_of(analysis) if len(analysis.trace.python) else ()
    return flames, anatomy_of(analysis, name)


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
