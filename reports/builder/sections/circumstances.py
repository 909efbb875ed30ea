"""What was measured, for which goal, in which run, and how sure the answer is, in words."""

from __future__ import annotations

from ....records import Advice, DeviceInfo, Goal, RunRecord
from ....units import format_bytes, format_seconds, format_share
from ...words.wording import plural

SURENESS = {
    "confirmed": "confirmed, measured again in a fresh process",
    "not confirmed": "not confirmed, the measurement in a fresh process leaves it in doubt",
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


def sureness(record: RunRecord, advice: Advice) -> str:
    """How sure the answer is; a live function was measured in one process throughout."""
    text = SURENESS[advice.sureness]
    if _live(record):
        text = text.replace("a fresh process", "the same process")
    return "; ".join([text, *reservations(advice)])


def reservations(advice: Advice) -> list[str]:
    """Reasons why the answer is less sure than its word says."""
    return [finding.message for finding in advice.findings if finding.rule in LESS_SURE]


def _live(record: RunRecord) -> bool:
    return record.discovery is not None and record.discovery.traits.in_this_process


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
    if goal.multiple_of > 1:
        parts.append(f"multiples of {goal.multiple_of}")
    if goal.sizes:
        parts.append(f"sizes {', '.join(map(str, goal.sizes))}")
    return "; ".join(parts) + "."


def _run(record: RunRecord) -> str:
    sizes = {trial.batch_size for trial in record.trials if trial.says_of_size}
    text = (
        f"{plural(len(record.trials), 'trial')} of {plural(len(sizes), 'size')} "
        f"in {format_seconds(record.elapsed_s)}"
    )
    if record.num_workers_started > 1 and not _live(record):
        text += f", {record.num_workers_started} processes"
    ended = {"running": "not finished", "interrupted": "interrupted", "failed": "failed"}
    state = ended.get(record.state)
    reasons = [reason for reason in (state, record.stop_reason) if reason]
    if len(reasons) == 2 and reasons[1].startswith(reasons[0]):
        reasons = reasons[1:]
    return f"{text}; ended: {', '.join(reasons)}." if reasons else f"{text}."
