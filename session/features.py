"""Parts of features, found by name: the core imports none. What they add to the answer of a run."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..records import Advice, RunRecord
    from ..reports.report import Report

FILES = {"remedies.json": "remedies"}
"""Files in a run's folder, and the features that left them: each has a module `added`."""


def part_of(feature: str, name: str) -> Any:
    """The module `features/FEATURE/NAME.py`."""
    return import_module(f"..features.{feature}.{name}", __package__)


def with_features(report: Report, folder: Path) -> Report:
    """The report with what features add to it."""
    for module in _in(folder):
        report = module.to_report(report, folder)
    return report


def json_of_features(folder: Path) -> dict[str, Any]:
    """What features add to the JSON of an answer."""
    added: dict[str, Any] = {}
    for module in _in(folder):
        added |= module.to_json(folder)
    return added


def remedies_offered(record: RunRecord, advice: Advice, folder: Path) -> str:
    """What `run --try` would take after this answer; empty where nothing can be tried."""
    names: str = part_of("remedies", "added").offered(record, advice, folder)
    return names


def _in(folder: Path) -> Iterator[Any]:
    for file, name in FILES.items():
        if (folder / file).is_file():
            yield part_of(name, "added")
