"""Several devices side by side, as terminal text."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from ..records import Advice, DeviceRun, DevicesRecord, RunRecord, SplitPlan
from ..units import format_bytes
from . import split as split_text
from .layout import Page
from .wording import measured

UNFINISHED = {"running": "has not finished", "interrupted": "was interrupted", "failed": "failed"}
INTERRUPTED = 130
"""Exit code of a run that was interrupted; its record goes on with --resume."""
HEADER = ("device", "batch", "samples/s", "step ms", "peak", "limit", "sureness")


def render(
    record: DevicesRecord,
    answers: Mapping[str, tuple[RunRecord, Advice]],
    *,
    folder: str,
    width: int,
    color: bool,
    encoding: str = "utf-8",
    split: SplitPlan | str | None = None,
    resume: Sequence[str] = (),
) -> str:
    """A row a device, what the twins showed, where the whole answers are.

    Args:
        answers: record and advice by device, where there are any.
        folder: of the run.
        split: the plan for all devices together, or why there is none.
        resume: commands that go on with the runs that were interrupted.
    """
    page = Page(width, encoding)
    good = [one for one in record.devices if _size(answers.get(one.device)) is not None]
    style = "bold green" if good else "bold red"
    page.entry(headline(record, answers), style=style, indent=0)
    if record.state != "finished":
        page.entry(f"The run {UNFINISHED[record.state]}; what was measured is below.", indent=0)
    page.blank()
    page.entry("Devices", style="bold", indent=0)
    rows = [HEADER, *(device_row(one, answers.get(one.device)) for one in record.devices)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEADER))]
    for row in rows:
        cells = [cell.ljust(wide) for cell, wide in zip(row, widths, strict=True)]
        page.entry("  ".join(cells).rstrip())
    together = together_text(answers)
    if together:
        page.entry(together)
    if split is not None and len(record.devices) > 1:
        split_text.entries(page, split, folder)
    notes = [line for one in record.devices for line in device_notes(one)]
    if notes:
        page.blank()
        page.entry("Findings", style="bold", indent=0)
        for line in notes:
            page.entry(line)
    page.blank()
    page.whole(folder, label="Wrote ", indent=0)
    for number, command in enumerate(resume):
        page.whole(command, label="  or  " if number else "Next: ", indent=0)
    first = next((one.folder for one in good), None)
    if first is not None and not resume:
        command = f"batchadvisor advise {shlex.quote(f'{folder}/{first}')}"
        page.whole(command, label="Next: ", indent=0)
    return page.render(color=color)


def device_row(one: DeviceRun, answer: tuple[RunRecord, Advice] | None) -> tuple[str, ...]:
    """The cells of a device below `HEADER`."""
    if answer is None or answer[1].recommended is None:
        return (one.device, "-", "-", "-", "-", "-", ended(one))
    advice = answer[1]
    choice = advice.recommended
    assert choice is not None
    rate = "-" if choice.samples_per_s is None else " ".join(measured(choice.samples_per_s))
    step = "-" if choice.step_s is None else " ".join(measured(choice.step_s, 1e3))
    if one.twin_of is not None:  # its own speed at that size; the rest is the twin's
        own = one.check.samples_per_s if one.check is not None else None
        rate, step = "-" if own is None else " ".join(measured(own)), "-"
    peak = "-" if choice.peak_bytes is None else format_bytes(choice.peak_bytes)
    sure = advice.sureness if one.twin_of is None else f"as {one.twin_of}"
    return (one.device, str(choice.batch_size), rate, step, peak, advice.verdict.limit, sure)


def ended(one: DeviceRun) -> str:
    """How the run of a device without an answer ended."""
    if one.exit_code == INTERRUPTED:
        return "interrupted"
    if one.exit_code is None and not one.error:
        return "not begun"
    return one.error.removeprefix("Error: ") or "failed"


def headline(record: DevicesRecord, answers: Mapping[str, tuple[RunRecord, Advice]]) -> str:
    """The size of each device in one line."""
    sizes = [(one.device, _size(answers.get(one.device))) for one in record.devices]
    text = ", ".join(f"{name} {size}" for name, size in sizes if size is not None)
    return f"Batch size by device: {text}" if text else "No device has an answer"


def rates(answers: Mapping[str, tuple[RunRecord, Advice]]) -> dict[str, float]:
    """Samples per second of each device at its recommended size, where they were measured."""
    return {
        name: choice.samples_per_s.median
        for name, (_, advice) in answers.items()
        if (choice := advice.recommended) is not None and choice.samples_per_s is not None
    }


def together_text(answers: Mapping[str, tuple[RunRecord, Advice]]) -> str:
    """What an equal share does: the slowest device sets the pace. Empty if it hardly matters."""
    found = rates(answers)
    if len(found) < 2:
        return ""
    slowest = min(found, key=lambda name: found[name])
    whole, equal = sum(found.values()), len(found) * found[slowest]
    if equal >= 0.9 * whole:
        return ""
    return (
        f"With equal shares {slowest} sets the pace: {equal / whole:.0%} of what the devices "
        "can do together; unequal shares lose less (split plan)."
    )


def device_notes(one: DeviceRun) -> list[str]:
    """How it compares with its twin, or why it failed."""
    check = one.check
    if check is None:
        return [f"error: {one.device}: {one.error.removeprefix('Error: ')}"] if one.error else []
    if check.ratio is None:
        reason = check.unavailable.get("ratio", "not known")
        return [f"{one.device} could not be compared with {check.twin}: {reason}"]
    ratio = check.ratio
    by = f"x{ratio.median:.2f} (x{ratio.low:.2f} to x{ratio.high:.2f})"
    where = f"{by} the samples per second of {check.twin} at batch {check.batch_size}"
    if check.verdict == "weak":
        text = f"warning: {one.device} is a weak twin: {where}, both running; probed by itself."
        return [text, "  Look for throttling, other processes, a slower slot, a power limit."]
    if check.verdict == "strong":
        return [f"warning: {one.device} is faster than its twin: {where}"]
    words = "is as fast as" if check.verdict == "equal" else "cannot be told apart from"
    return [f"info: {one.device} {words} {check.twin}: {where}"]


def _size(answer: tuple[RunRecord, Advice] | None) -> int | None:
    if answer is None or answer[1].recommended is None:
        return None
    return answer[1].recommended.batch_size
