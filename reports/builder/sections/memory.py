"""Where the memory of a run's steps goes."""

from __future__ import annotations

import msgspec

from ....records import (
    Choice,
    ExplainedSize,
    MemoryAnalysis,
    MemoryExplained,
    RunRecord,
    WhyExplained,
)
from ....units import format_bytes
from ...blocks import Document, Facts, Section
from ...chart import Chart
from ...report import Fact, MemorySection
from ...text import MemoryLines
from ...words.wording import clean
from ..memory import (
    history_chart,
    memory_blocks,
    notes_of,
    snapshot_sections,
    what_to_cut,
)
from .held_memory import held_section, held_sentence
from .step_memory import by_category, category, on_one_scale, share, step_section

ESTIMATE = "an estimate: a step on tensors without contents; no tensor was measured"
WHY: dict[WhyExplained, str] = {
    "recommended": "recommended",
    "largest that ran": "the largest below it that ran",
    "out of memory": "out of memory",
}
NUM_LINES = 3


def memory_sections(record: RunRecord, recommended: Choice | None) -> tuple[MemorySection, ...]:
    """A section for each size that was explained; one that says why there is none; none at all
    where nobody looked.

    Args:
        recommended: by the answer, which may be another than when memory was explained.
    """
    explained = record.explained
    if explained is None:
        return ()
    if not explained.sizes and not explained.held:
        return (_unknown("", explained.reason),)
    sections = [_section(each, record, recommended) for each in explained.sizes]
    beside = any(len(section.charts) > 1 for section in sections)
    return (
        *sections,
        *(held_section(each, record) for each in reversed(explained.held)),
        *_recorded(explained, beside=beside),
    )


def memory_lines(record: RunRecord) -> MemoryLines | None:
    """Says in few lines what filled the memory; `None` where nobody looked."""
    explained = record.explained
    if explained is None:
        return None
    if explained.held:
        return MemoryLines(categories=clean(held_sentence(explained.held[-1]), limit=400))
    known = [each for each in explained.sizes if each.trial is not None]
    if not known:
        reason = explained.reason or next((each.reason for each in explained.sizes), "")
        return MemoryLines(unknown=clean(f"unavailable: {reason}"))
    each = known[0]
    trial = each.trial
    assert trial is not None
    sizes = by_category(trial.at_peak)
    parts = [
        f"{name} {format_bytes(size)} ({share(size, trial.peak_bytes)})" for name, size in sizes
    ]
    lines = [source for source in trial.lines if source.name][:NUM_LINES]
    return MemoryLines(
        categories=clean(
            f"At batch {each.batch_size} tensors take {format_bytes(trial.peak_bytes)} at the peak "
            f"(estimate): {', '.join(parts)}.",
            limit=400,
        ),
        lines=tuple(
            Fact(
                label=format_bytes(line.num_bytes),
                text=clean(f"{line.name}  {', '.join(category(role) for role in line.roles)}"),
            )
            for line in lines
        ),
    )


def memory_page(
    record: RunRecord, recommended: Choice | None, snapshot: MemoryAnalysis | None = None
) -> Document:
    """A page of its own, for a run that met an out-of-memory error.

    Args:
        recommended: by the answer.
        snapshot: what torch's recorder says of it.
    """
    refused = [trial for trial in record.trials if trial.outcome == "out_of_memory"]
    smallest = min(refused, key=lambda trial: trial.batch_size, default=None)
    headline = "Where the memory goes."
    if smallest is not None:
        headline = f"Batch {smallest.batch_size} ran out of memory."
        device = record.device
        if device is not None:
            headline = f"{headline[:-1]}: the script can have {capacity_text(record)}."
    identity = [("script", record.script.path), ("started", record.started_at)]
    if record.device is not None:
        identity.append(("device", record.device.name))
    if smallest is not None and smallest.detail:
        identity.append(("the error", smallest.detail))
    facts = Facts(facts=tuple(Fact(label=label, text=clean(text)) for label, text in identity))
    snapshots = snapshot_sections(snapshot) if snapshot else ()
    sections = (*memory_sections(record, recommended), *snapshots)
    return Document(
        kind="where the memory goes",
        title=clean(record.script.path),
        headline=clean(headline),
        blocks=(
            *(what_to_cut(snapshot) if snapshot else ()),
            *memory_blocks(sections),
            Section(title="This run", blocks=(facts, *(notes_of(snapshot) if snapshot else ()))),
        ),
    )


def capacity_text(record: RunRecord) -> str:
    """What the script can have of the device, and who says so; the record has a device."""
    device = record.device
    assert device is not None
    return f"{format_bytes(device.capacity_bytes)} ({device.capacity_source})"


def _section(each: ExplainedSize, record: RunRecord, recommended: Choice | None) -> MemorySection:
    still = recommended is not None and recommended.batch_size == each.batch_size
    why = "" if each.why == "recommended" and not still else f", {WHY[each.why]}"
    name = f"batch {each.batch_size}{why}"
    trial = each.trial
    if trial is None:
        return _unknown(name, each.reason)
    facts = [
        ("tensors at the peak", f"{format_bytes(trial.peak_bytes)}; {ESTIMATE}"),
        *_measured(each, record),
        *([("limit", capacity_text(record))] if record.device is not None else []),
    ]
    section = step_section(trial, name=name, key=f"step_memory_{each.batch_size}", facts=facts)
    return section if each.why != "recommended" else _beside_recorded(section, record)


def _beside_recorded(section: MemorySection, record: RunRecord) -> MemorySection:
    """The estimate of a step and, where torch recorded one, what was measured, on one scale."""
    measured = _recorded_charts(record)
    if len(section.charts) != 1 or len(measured) != 1:
        return section
    return msgspec.structs.replace(section, charts=on_one_scale(*section.charts, *measured))


def _recorded_charts(record: RunRecord) -> tuple[Chart, ...]:
    """What torch's recorder measured of a step over its events, a chart for each device."""
    recorded = None if record.explained is None else record.explained.recorded
    if recorded is None:
        return ()
    return tuple(
        msgspec.structs.replace(
            chart, title=f"The same, measured by torch's recorder, GPU {device.device}"
        )
        for device in recorded.devices
        for chart in history_chart(device)
    )


def _measured(each: ExplainedSize, record: RunRecord) -> list[tuple[str, str]]:
    """The measured memory of the size, beside the estimate."""
    for trial in reversed(record.trials):
        if trial.batch_size != each.batch_size:
            continue
        if trial.ran and trial.memory is not None:
            memory = trial.memory
            return [("measured", f"{format_bytes(memory.peak_bytes)}, {memory.peak_source}")]
        if trial.outcome == "out_of_memory":
            return [("measured", f"nothing: memory was refused ({trial.detail})")]
    return []


def _recorded(explained: MemoryExplained, *, beside: bool) -> tuple[MemorySection, ...]:
    """What torch's recorder measured over a step, a section for each device.

    Args:
        beside: whether its chart is shown beside the estimate's.
    """
    if explained.recorded is None:
        return ()
    return tuple(
        msgspec.structs.replace(
            section,
            name=f"{section.name}, one step recorded by torch",
            charts=() if beside else section.charts,
        )
        for section in snapshot_sections(explained.recorded)
    )


def _unknown(name: str, reason: str) -> MemorySection:
    return MemorySection(
        name=clean(name),
        facts=(Fact(label="unavailable", text=clean(reason)),),
        tables=(),
    )
