"""The page of a snapshot of the memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

import msgspec

from ...records import (
    MemoryAnalysis,
    MemoryCategory,
    MemoryCut,
    MemoryLine,
    MemoryShare,
    OutOfMemory,
    SnapshotDevice,
)
from ...units import GIB, format_bytes
from ..blocks import Charts, Document, Facts, Grid, Paragraph, Section, paragraphs
from ..chart import Chart, Mark, Series, rounded
from ..report import Column, Fact, Finding, MemorySection, Row, Table
from ..words.wording import bytes_per_sample, clean, percent, plural

NO_LINE = "(no Python frame)"
FEW_TABLES, FEW_ROWS = 4, 3
"""Tables of a device, and rows of each, that a window of text shows unless all are wanted."""
MARKED_STEPS = 24
"""More ends of steps are not marked one by one."""
NAMES: dict[MemoryCategory, str] = {
    "parameters": "parameters and buffers", "optimizer": "optimizer", "forward": "forward",
    "backward": "backward", "communication": "communication", "unknown": "unknown",
}  # fmt: skip


def build_memory_page(analysis: MemoryAnalysis, *, whole: bool = True) -> Document:
    """Everything that the terminal, HTML and Markdown show of a snapshot.

    Args:
        whole: whether a window of text shows every table, with all its rows.
    """
    name = clean(PurePath(analysis.snapshot).name)
    settings = ", ".join(f"{key}={value}" for key, value in sorted(analysis.settings.items()))
    identity = [Fact(label="file", text=f"{name} ({format_bytes(analysis.file_bytes)})")]
    if settings:
        identity.append(Fact(label="allocator", text=clean(settings)))
    return Document(
        kind="snapshot of the memory",
        title=name,
        headline=_headline(analysis.devices),
        blocks=(
            *what_to_cut(analysis),
            *memory_blocks(snapshot_sections(analysis), whole=whole),
            Section(blocks=notes_of(analysis)),
            Section(title="This snapshot", blocks=(Facts(facts=tuple(identity)),), shown="files"),
        ),
    )


def snapshot_sections(analysis: MemoryAnalysis) -> tuple[MemorySection, ...]:
    """A section for each device."""
    return tuple(map(_section, analysis.devices))


def what_to_cut(analysis: MemoryAnalysis) -> tuple[Section, ...]:
    """What to cut, in a section; nothing where nothing stands out."""
    findings = tuple(map(_finding, analysis.cuts))
    return (Section(title="What to cut", blocks=findings),) if findings else ()


def notes_of(analysis: MemoryAnalysis) -> tuple[Paragraph, ...]:
    """What to know before a snapshot is believed."""
    return paragraphs([f"{note[0].upper()}{note[1:]}." for note in analysis.notes], "warning")


def memory_blocks(sections: Sequence[MemorySection], *, whole: bool = True) -> tuple[Section, ...]:
    """Sections of memory as blocks: facts and charts, then each table under its own title.

    Args:
        whole: whether a window of text shows every table, with all its rows.
    """
    blocks: list[Section] = []
    for section in sections:
        name = f"{section.name[:1].upper()}{section.name[1:]}"
        seen = (
            *((Facts(facts=section.facts),) if section.facts else ()),
            *((Charts(charts=section.charts),) if section.charts else ()),
        )
        if seen:
            blocks.append(Section(title=name or "Where the memory goes", blocks=seen))
        for at, table in enumerate(section.tables):
            title = f"{name}: {table.title[:1].lower()}{table.title[1:]}" if name else table.title
            grid = Grid(table=table, cut=True)
            if not whole:
                grid = msgspec.structs.replace(grid, most_rows=FEW_ROWS, more="--all")
            shown = whole or at < FEW_TABLES
            blocks.append(
                Section(title=title, blocks=(grid,), shown="everywhere" if shown else "files")
            )
    return tuple(blocks)


def _headline(devices: Sequence[SnapshotDevice]) -> str:
    if not devices:
        return "The snapshot holds no memory."
    failed = next((device for device in devices if device.out_of_memory is not None), None)
    if failed is not None and failed.out_of_memory is not None:
        asked = format_bytes(failed.out_of_memory.requested_bytes)
        why = {
            True: "enough was free, but in pieces: fragmentation",
            False: "too little was free",
            None: "what was free then is not known",
        }[failed.out_of_memory.fragmentation]
        if failed.out_of_memory.fragmentation is False and _has_room(failed.out_of_memory):
            why = "though a piece of that size was free"
        return f"GPU {failed.device} had no {asked} left when it was asked for: {why}."
    fullest = max(devices, key=lambda device: device.reserved_bytes)
    return (
        f"GPU {fullest.device}: {format_bytes(fullest.allocated_bytes)} in use of "
        f"{format_bytes(fullest.reserved_bytes)} reserved."
    )


def _has_room(failed: OutOfMemory) -> bool:
    return (failed.largest_free_bytes or 0) >= failed.requested_bytes


def _finding(cut: MemoryCut) -> Finding:
    return Finding(
        severity="warning",
        message=clean(f"GPU {cut.device}: {cut.message}."),
        evidence=clean(f"{cut.evidence}."),
        remedy=clean(f"{cut.remedy} (not tried)."),
    )


def _section(device: SnapshotDevice) -> MemorySection:
    tables = [_categories(device), _lines("In use, by line of code", device.lines)]
    if device.peak is not None:
        tables.append(_lines("At the peak of the history, by line of code", device.peak.lines))
    tables += [table for table in (_growth(device), _blocks(device), _pools(device)) if table.rows]
    return MemorySection(
        name=f"GPU {device.device}",
        facts=tuple(_facts(device)),
        tables=tuple(table for table in tables if table.rows),
        charts=(*history_chart(device), *_failure_chart(device)),
    )


def _facts(device: SnapshotDevice) -> list[Fact]:
    whole = device.reserved_bytes
    failed = device.out_of_memory
    facts = []
    if failed is not None:
        facts += [
            Fact(label="out of memory", text=_failed(device, failed)),
            Fact(label="the rest", text=f"as the snapshot was taken, {_later(failed)}"),
        ]
    facts += [
        Fact(label="reserved", text=f"{format_bytes(whole)} in {_segments(device)}"),
        Fact(label="in use", text=_part(device.allocated_bytes, whole, "of it")),
        Fact(label="asked for", text=format_bytes(device.requested_bytes)),
        Fact(label="lost to rounding", text=format_bytes(device.rounding_bytes)),
    ]
    if device.awaiting_bytes:
        text = f"{format_bytes(device.awaiting_bytes)}, freed, but another stream may use it"
        facts.append(Fact(label="awaiting free", text=text))
    facts += [
        Fact(
            label="free in pieces",
            text=f"{_part(device.inactive_split_bytes, whole, 'of it')}, in segments in use",
        ),
        Fact(label="free segments", text=f"{format_bytes(device.cached_bytes)}, cached"),
        Fact(label="largest free piece", text=_largest(device)),
    ]
    facts.append(Fact(label="history", text=_history(device)))
    if device.peak is not None:
        before = format_bytes(device.peak.before_bytes)
        text = f"{format_bytes(device.peak.num_bytes)} asked for, at event {device.peak.position}"
        facts.append(Fact(label="peak", text=f"{text}; {before} of it older than the history"))
    texts: dict[str, list[str]] = {}
    for name, why in device.unavailable.items():
        texts.setdefault(why, []).append(name)
    facts += [Fact(label=f"no {', '.join(names)}", text=clean(why)) for why, names in texts.items()]
    return facts


def _later(failed: OutOfMemory) -> str:
    if not failed.events_after:
        return "with nothing in between"
    return f"{plural(failed.events_after, 'event')} after the failure"


def _largest(device: SnapshotDevice) -> str:
    """With a failure, whether the piece was there for the request that failed."""
    text, failed = format_bytes(device.largest_free_bytes), device.out_of_memory
    if failed is None:
        return text
    text += f" as the snapshot was taken, {_later(failed)}"
    if failed.largest_free_bytes is None:
        return f"{text}; when memory was refused: not known"
    bound = "" if failed.exact else "at most "
    return f"{text}; for the request that failed {bound}{format_bytes(failed.largest_free_bytes)}"


def _segments(device: SnapshotDevice) -> str:
    kind = " expandable" if device.expandable else ""
    return plural(device.num_segments, f"{kind} segment".strip())


def _part(size: int, whole: int, of: str) -> str:
    return f"{format_bytes(size)} ({percent(100 * size / whole)}% {of})" if whole else "0 B"


def _history(device: SnapshotDevice) -> str:
    text = plural(device.num_events, "event")
    if device.num_steps:
        text += f", {plural(device.num_steps, 'step')} told by {device.step_source}"
    return text


def _failed(device: SnapshotDevice, failed: OutOfMemory) -> str:
    asked = clean(failed.line) or NO_LINE
    text = f"{format_bytes(failed.requested_bytes)} asked for by {asked}"
    if failed.free_bytes is not None and failed.largest_free_bytes is not None:
        bound = "" if failed.exact else "at most "
        text += (
            f"; {bound}{format_bytes(failed.free_bytes)} was free in segments that could serve it, "
            f"the largest piece {bound}{format_bytes(failed.largest_free_bytes)}"
        )
    if failed.device_free_bytes is not None:
        text += f"; the device had {format_bytes(failed.device_free_bytes)} outside"
    if not failed.exact:
        text += f" ({plural(failed.events_after, 'event')} later than the failure)"
    if device.num_out_of_memory > 1:
        text += f"; the last of {device.num_out_of_memory} failures"
    return text


def _categories(device: SnapshotDevice) -> Table:
    peak = {} if device.peak is None else _by_category(device.peak.categories)
    now = _by_category(device.categories)
    columns = [Column(title="what for", left=True), Column(title="in use")]
    rows = []
    for category in sorted({*now, *peak}, key=lambda key: -max(now.get(key, 0), peak.get(key, 0))):
        cells = [NAMES[category], format_bytes(now.get(category, 0))]
        cells += [format_bytes(peak.get(category, 0))] if device.peak is not None else []
        rows.append(Row(cells=tuple(cells)))
    columns += [Column(title="at the peak")] if device.peak is not None else []
    note = (
        "What frames prove, the innermost first: torch/optim, autograd, nn.Module. Memory that "
        "the backward's threads ask for has no Python frames: it is unknown."
    )
    return Table(title="By what it is for", columns=tuple(columns), rows=tuple(rows), notes=(note,))


def _by_category(shares: Sequence[MemoryShare]) -> dict[MemoryCategory, int]:
    return {share.category: share.num_bytes for share in shares}


def _where(line: str, function: str) -> str:
    return clean(f"{line} ({function})" if function else line) if line else NO_LINE


def _lines(title: str, lines: Sequence[MemoryLine]) -> Table:
    return Table(
        title=title,
        columns=(Column(title="bytes"), Column(title="blocks"), Column(title="line", left=True)),
        rows=tuple(
            Row(
                cells=(
                    format_bytes(line.num_bytes),
                    str(line.num_blocks),
                    _where(line.line, line.function),
                )
            )
            for line in lines
        ),
    )


def _growth(device: SnapshotDevice) -> Table:
    return Table(
        title="Growing from step to step",
        columns=(Column(title="a step"), Column(title="steps"), Column(title="line", left=True)),
        rows=tuple(
            Row(
                cells=(
                    bytes_per_sample(line.bytes_per_step),
                    str(line.num_steps),
                    _where(line.line, line.function),
                ),
                state="doubtful",
            )
            for line in device.growth
        ),
    )


def _blocks(device: SnapshotDevice) -> Table:
    return Table(
        title="Largest blocks in use",
        columns=(
            Column(title="bytes"),
            Column(title="what for", left=True),
            Column(title="line", left=True),
        ),
        rows=tuple(
            Row(
                cells=(
                    format_bytes(block.num_bytes),
                    NAMES[block.category],
                    _where(block.line, block.function),
                )
            )
            for block in device.largest
        ),
    )


def _pools(device: SnapshotDevice) -> Table:
    titles = ("segments", "reserved", "in use", "free", "largest piece", "stream", "pool", "kind")
    failed = device.out_of_memory
    return Table(
        title="By stream and pool",
        columns=tuple(Column(title=title, left=title == "kind") for title in titles),
        rows=tuple(
            Row(
                cells=(
                    str(pool.num_segments),
                    format_bytes(pool.reserved_bytes),
                    format_bytes(pool.allocated_bytes),
                    format_bytes(pool.inactive_bytes),
                    format_bytes(pool.largest_free_bytes),
                    str(pool.stream),
                    "general" if pool.pool == (0, 0) else f"{pool.pool[0]}, {pool.pool[1]}",
                    clean(pool.kind) or "-",
                )
            )
            for pool in device.pools
        ),
        notes=() if failed is None else (f"As the snapshot was taken, {_later(failed)}.",),
    )


def history_chart(device: SnapshotDevice) -> tuple[Chart, ...]:
    """Memory over the events of the history; nothing where the history does not tell it."""
    line = device.timeline
    if line is None or len(line.positions) < 2:
        return ()
    series = [_series("active", "in use, as asked for", 1, line.active_bytes)]
    if line.reserved_bytes:
        series.append(_series("reserved", "reserved", 2, line.reserved_bytes))
    marks = []
    if device.out_of_memory is not None:
        at = float(device.out_of_memory.position)
        marks.append(Mark(axis="x", value=at, label="out of memory", kind="failed"))
    if len(line.steps) <= MARKED_STEPS:
        marks += [
            Mark(axis="x", value=float(at), label=str(number), kind="phase")
            for number, at in enumerate(line.steps, 1)
        ]
    group = -(-device.num_events // len(line.positions))
    notes = ["Numbers at the top: ends of steps."] if len(marks) > 1 else []
    if group > 1:
        notes.append(f"Of each {group} events, the one with most in use.")
    return (
        Chart(
            key=f"memory_{device.device}",
            title=f"Memory over the history of GPU {device.device}",
            x_label="event",
            x_scale="linear",
            x=tuple(map(float, line.positions)),
            y_label="GiB",
            unit="GiB",
            series=tuple(series),
            marks=tuple(marks),
            notes=tuple(notes),
        ),
    )


def _failure_chart(device: SnapshotDevice) -> tuple[Chart, ...]:
    """The events around the request that failed, on an axis that begins near the curve."""
    line, failed = device.failure, device.out_of_memory
    if line is None or failed is None or len(line.positions) < 2:
        return ()
    series = [_series("active", "in use, as asked for", 1, line.active_bytes)]
    if line.reserved_bytes:
        series.append(_series("reserved", "reserved", 2, line.reserved_bytes))
    at = line.positions.index(failed.position)
    wanted = (line.active_bytes[at] + failed.requested_bytes) / GIB
    series.append(
        Series(
            key="refused",
            label="in use and what was refused",
            kind="measured",
            color=4,
            values=tuple(
                rounded(wanted) if position == failed.position else None
                for position in line.positions
            ),
        )
    )
    values = [value for each in series for value in each.values if value is not None]
    low, high = min(values), max(values)
    cut = low > (high - low) / 2
    return (
        Chart(
            key=f"failure_{device.device}",
            title=f"Around the failure on GPU {device.device}, event by event",
            x_label="events since the request that failed",
            x_scale="linear",
            x=tuple(float(position - failed.position) for position in line.positions),
            y_label="GiB",
            unit="GiB",
            y_low=(rounded(low - (high - low) / 4) or 0.0) if cut else 0.0,
            series=tuple(series),
            marks=(
                Mark(
                    axis="x",
                    value=0.0,
                    label=f"{format_bytes(failed.requested_bytes)} refused",
                    kind="failed",
                ),
            ),
            notes=("The axis of memory does not begin at 0.",) if cut else (),
        ),
    )


def _series(key: str, label: str, color: int, values: Sequence[int]) -> Series:
    return Series(
        key=key,
        label=label,
        kind="timeline",
        color=color,
        values=tuple(rounded(value / GIB) for value in values),
    )
