"""Traces without a record of ours: their names, and what limits their steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath

from ...records import Analysis, TraceReport
from .wording import clean


def trace_names(reports: Sequence[TraceReport]) -> list[str]:
    """Short names that tell the reports apart."""
    paths = [PurePath(report.trace) for report in reports]
    short = [path.name for path in paths]
    folders = {path.parent for path in paths}
    if len(folders) == len({folder.name for folder in folders}) > 1:
        # A run's traces: a folder for each size, with more than one where it was timed again.
        alone = Counter(path.parent for path in set(paths))
        short = [
            path.parent.name
            if alone[path.parent] == 1
            else f"{path.parent.name}/{path.name.partition('.')[0]}"
            for path in paths
        ]
    if len(set(short)) < len(set(paths)):
        short = [f"{path.parent.name}/{path.name}" for path in paths]
    names = []
    for report, name in zip(reports, short, strict=True):
        trimmed = name.removesuffix(".gz").removesuffix(".json").removesuffix(".pt.trace")
        several = sum(other.trace == report.trace for other in reports) > 1
        names.append(f"{trimmed} GPU {report.device}" if several else trimmed)
    return names


def trace_line(analysis: Analysis) -> str:
    """The page in one line."""
    verdict = analysis.verdict or analysis.traces[0].verdict
    return clean(f"{verdict.limit}: {verdict.message}")
