"""What remedies add to the answer of a run: `session/features.py` finds this module by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...records import Advice, RunRecord
from ...reports.report import Report
from . import store
from .catalogue import plausible
from .page import with_remedies


def to_report(report: Report, folder: Path) -> Report:
    """The report with what was tried; as it is where the file cannot be read."""
    remedies = store.read(folder)
    return report if remedies is None else with_remedies(report, remedies)


def to_json(folder: Path) -> dict[str, Any]:
    """What was tried, for machines."""
    remedies = store.read(folder)
    return {} if remedies is None else {"remedies": remedies}


def offered(record: RunRecord, advice: Advice, folder: Path) -> str:
    """What `--try` would take after this answer; empty where nothing can be tried of the run."""
    found = record.discovery
    if record.state != "finished" or advice.recommended is None or found is None:
        return ""
    tried = "--try" in record.command or (folder / store.FILE).exists()
    if tried or record.observed is not None or record.command[:2] != ("batchadvisor", "run"):
        return ""
    alone = record.distribution is None and found.num_ranks == 1
    if not alone or not found.traits.steers_loader:
        return ""
    kept = any(each.rule == "memory.page_faults" and each.code for each in advice.findings)
    counted = [trial.flops for trial in record.trials if trial.flops is not None]
    convolves = any(flops.convolutions for flops in counted)
    names = (plausible(advice.verdict.limit, convolves=convolves), "allocator" if kept else "")
    return ",".join(name for name in names if name)
