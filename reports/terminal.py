"""The answer as terminal text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len

from ..records import Advice, DeviceInfo, Goal, RunRecord
from ..units import format_bytes, format_seconds, format_share
from . import sections
from .distribution import add_distribution
from .layout import Page
from .table import add_table
from .wording import plural

SURENESS = {
    "confirmed": "confirmed, measured again in a fresh process",
    "not confirmed": "not confirmed, the fresh process does not bear it out",
    "measured once": "measured once, not confirmed in a fresh process",
    "partial": "partial, the measurement ended early and nothing was confirmed",
    "none": "none",
}
LESS_SURE = ("search.cut_short", "confirm.differs", "noise", "steps.mixed")
"""Findings that stand beside how sure the answer is."""
GOALS = {
    "knee": "knee: the smallest size within {tolerance} of the best throughput",
    "throughput": "throughput: the fastest size",
    "memory": "memory: the largest size",
    "energy": "energy: the most samples per joule",
}


def render(
    record: RunRecord,
    advice: Advice,
    *,
    files: Sequence[tuple[str, str]],
    next_command: str,
    others: Sequence[str] = (),
    width: int,
    color: bool,
    encoding: str = "utf-8",
) -> str:
    """The whole report.

    Args:
        files: label and path of what was written, in order.
        next_command: what to type next.
        others: what else could be typed.
        width: columns of the terminal; no line is longer, except for paths and commands.
        color: whether ANSI codes may be used.
        encoding: of the output; characters that it lacks are replaced.
    """
    page = Page(width, encoding)
    _answer(page, record, advice)
    _circumstances(page, record, advice.goal)
    add_table(page, record, advice)
    sections.add_training(page, advice)
    sections.add_verdict(page, advice)
    add_distribution(page, record, advice)
    sections.add_tail(page, advice)
    sections.add_findings(page, record, advice)
    sections.add_estimates(page, advice)
    sections.add_touched(page, record.files)
    sections.add_ending(page, files, next_command, others)
    return page.render(color=color)


def sureness(record: RunRecord, advice: Advice) -> str:
    """How sure the answer is; a live function was measured in one process throughout."""
    text = SURENESS[advice.sureness]
    if _live(record):
        text = text.replace("a fresh process", "the same process")
    return "; ".join([text, *_buts(advice)])


def _buts(advice: Advice) -> list[str]:
    """What makes the answer less sure than the word says."""
    return [one.message for one in advice.findings if one.rule in LESS_SURE]


def _live(record: RunRecord) -> bool:
    return record.discovery is not None and record.discovery.door == "live"


def _answer(page: Page, record: RunRecord, advice: Advice) -> None:
    good = advice.recommended is not None
    page.entry(advice.headline, style="bold green" if good else "bold red", indent=0)
    if advice.reason:
        page.entry(advice.reason, indent=0)
    if good:
        sure = advice.sureness == "confirmed" and not _buts(advice)
        style = "" if sure else "yellow"
        page.entry(sureness(record, advice) + ".", label="Sureness: ", style=style, indent=0)
    if advice.change:
        _change(page, advice.change)


def _change(page: Page, change: str) -> None:
    """The line to change; where it is too long, its parts stand below each other."""
    label = "Change: "
    fits = cell_len(label) + cell_len(page.safe(change)) <= page.width
    for part in [change] if fits else re.split(r"\s{2,}", change):
        page.entry(part, label=label, style="bold", indent=0)
        label = " " * len(label)


def _circumstances(page: Page, record: RunRecord, goal: Goal) -> None:
    page.blank()
    page.pairs(circumstances(record, goal), indent=0)


def circumstances(record: RunRecord, goal: Goal) -> list[tuple[str, str]]:
    """What was measured, for which goal, in which run."""
    return [("Measured on", _measured_on(record)), ("Goal", _goal(goal)), ("Run", _run(record))]


def _measured_on(record: RunRecord) -> str:
    device = record.device
    parts = [_device(device) if device is not None else "not known: no device was found"]
    if device is not None:
        parts.append(_capacity(device))
    versions = record.versions
    if versions is not None:
        parts.append(f"torch {versions.torch}")
        if versions.cuda and device is not None and device.kind == "cuda":
            parts.append(f"CUDA {versions.cuda}")
        if versions.driver:
            parts.append(f"driver {versions.driver}")
    return ", ".join(parts) + "."


def _device(device: DeviceInfo) -> str:
    if device.kind == "cpu":
        cores = f", {plural(device.num_cores, 'core')}" if device.num_cores else ""
        return f"the CPU; numbers on a GPU will differ. {device.name}{cores}"
    index = "" if device.index is None else f":{device.index}"
    return f"{device.name} ({device.kind}{index})"


def _capacity(device: DeviceInfo) -> str:
    if device.capacity_bytes == device.total_bytes:
        return format_bytes(device.total_bytes)
    return (
        f"{format_bytes(device.capacity_bytes)} of {format_bytes(device.total_bytes)} "
        f"({device.capacity_source})"
    )


def _goal(goal: Goal) -> str:
    parts = [GOALS[goal.kind].format(tolerance=format_share(goal.tolerance))]
    parts.append(f"{format_share(goal.margin)} of the memory left free")
    if goal.keep_effective_batch:
        parts.append("effective batch kept")
    if goal.max_batch is not None:
        parts.append(f"at most {goal.max_batch}")
    if goal.sizes:
        parts.append(f"sizes {', '.join(map(str, goal.sizes))}")
    return "; ".join(parts) + "."


def _run(record: RunRecord) -> str:
    sizes = {one.batch_size for one in record.trials if one.purpose != "tail"}
    text = (
        f"{plural(len(record.trials), 'trial')} of {plural(len(sizes), 'size')} "
        f"in {format_seconds(record.elapsed_s)}"
    )
    if record.num_workers_started > 1 and not _live(record):
        text += f", {record.num_workers_started} processes"
    ended = {"running": "not finished", "interrupted": "interrupted", "failed": "failed"}
    state = ended.get(record.state)
    reasons = [one for one in (state, record.stop_reason) if one]
    if len(reasons) == 2 and reasons[1].startswith(reasons[0]):
        reasons = reasons[1:]
    return f"{text}; ended: {', '.join(reasons)}." if reasons else f"{text}."
