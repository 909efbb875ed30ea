"""What remedies add to the answer of a run: `session/features.py` finds this module by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...reports.report import Report
from . import store
from .page import with_remedies


def to_report(report: Report, folder: Path) -> Report:
    """The report with what was tried; as it is where the file cannot be read."""
    remedies = store.read(folder)
    return report if remedies is None else with_remedies(report, remedies)


def to_json(folder: Path) -> dict[str, Any]:
    """What was tried, for machines."""
    remedies = store.read(folder)
    return {} if remedies is None else {"remedies": remedies}
