"""Several devices side by side, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ....errors import INTERRUPTED_BY
from ....records import Advice, DeviceRun, DevicesRecord, RunRecord
from ....units import format_bytes
from ...report import Finding
from ...words.wording import beside_value, clean, measured

Answers = Mapping[str, tuple[RunRecord, Advice]]
"""Record and advice by device."""
Severity = Literal["error", "warning", "info"]
TO_LOOK_FOR = "Look for throttling, other processes, a slower slot, a power limit."
HEADER = ("device", "batch", "samples/s", "step ms", "peak", "limit", "sureness")


def device_row(run: DeviceRun, answer: tuple[RunRecord, Advice] | None) -> tuple[str, ...]:
    """The cells of a device below `HEADER`."""
    if answer is None or answer[1].recommended is None:
        return (run.device, "-", "-", "-", "-", "-", ended(run, answer))
    advice = answer[1]
    choice = advice.recommended
    assert choice is not None
    rate = "-" if choice.samples_per_s is None else beside_value(*measured(choice.samples_per_s))
    step = "-" if choice.step_s is None else beside_value(*measured(choice.step_s, 1e3))
    if run.twin_of is not None:  # its own speed at that size; the rest is the twin's
        own = run.check.samples_per_s if run.check is not None else None
        rate, step = "-" if own is None else beside_value(*measured(own)), "-"
    peak = "-" if choice.peak_bytes is None else format_bytes(choice.peak_bytes)
    sure = advice.sureness if run.twin_of is None else f"as {run.twin_of}"
    return (run.device, str(choice.batch_size), rate, step, peak, advice.verdict.limit, sure)


def ended(run: DeviceRun, answer: tuple[RunRecord, Advice] | None = None) -> str:
    """How the run of a device without an answer ended; what was measured there may say it."""
    if run.exit_code in INTERRUPTED_BY:
        return "interrupted"
    if answer is not None and not run.error:
        return answer[1].headline.rstrip(".")
    if run.exit_code is None and not run.error:
        return "not begun"
    return run.error.removeprefix("Error: ") or "failed"


def headline(record: DevicesRecord, answers: Answers) -> str:
    """The size of each device in one line."""
    sizes = [(run.device, size_of(answers.get(run.device))) for run in record.devices]
    text = ", ".join(f"{name} {size}" for name, size in sizes if size is not None)
    return f"Batch size by device: {text}" if text else "No device has an answer"


def rates(answers: Answers) -> dict[str, float]:
    """Samples per second of each device at its recommended size, where they were measured."""
    return {
        name: choice.samples_per_s.median
        for name, (_, advice) in answers.items()
        if (choice := advice.recommended) is not None and choice.samples_per_s is not None
    }


def together_text(answers: Answers) -> str:
    """Words the cost of equal shares: the slowest device sets the pace. Empty if it is small."""
    speeds = rates(answers)
    if len(speeds) < 2:
        return ""
    slowest = min(speeds, key=lambda name: speeds[name])
    whole, equal = sum(speeds.values()), len(speeds) * speeds[slowest]
    if equal >= 0.9 * whole:
        return ""
    return (
        f"With equal shares {slowest} sets the pace: {equal / whole:.0%} of what the devices "
        "can do together; unequal shares lose less (split plan)."
    )


def device_findings(run: DeviceRun) -> tuple[Finding, ...]:
    """How it compares with its twin, or why it failed."""
    check = run.check
    if check is None:
        error = f"{run.device}: {run.error.removeprefix('Error: ')}"
        return (_finding("error", error),) if run.error else ()
    if check.ratio is None:
        reason = check.unavailable.get("ratio", "not known")
        return (
            _finding("info", f"{run.device} could not be compared with {check.twin}: {reason}"),
        )
    ratio = check.ratio
    by = f"x{ratio.median:.2f} (x{ratio.low:.2f} to x{ratio.high:.2f})"
    where = f"{by} the samples per second of {check.twin} at batch {check.batch_size}"
    if check.verdict == "weak":
        text = f"{run.device} is a weak twin: {where}, both running; probed by itself."
        return (_finding("warning", text, TO_LOOK_FOR),)
    if check.verdict == "strong":
        return (_finding("warning", f"{run.device} is faster than its twin: {where}"),)
    words = "is as fast as" if check.verdict == "equal" else "cannot be told apart from"
    return (_finding("info", f"{run.device} {words} {check.twin}: {where}"),)


def _finding(severity: Severity, message: str, remedy: str = "") -> Finding:
    return Finding(severity=severity, message=clean(message), remedy=remedy)


def size_of(answer: tuple[RunRecord, Advice] | None) -> int | None:
    """The size that is recommended for a device; `None` where it has no answer."""
    if answer is None or answer[1].recommended is None:
        return None
    return answer[1].recommended.batch_size
