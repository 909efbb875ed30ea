"""Memory over a step as the profiler measured it: a chart for each device, and its figures."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from ....records import MemoryCurve, RunRecord
from ....units import format_bytes
from ...chart import Chart, Mark, Series, rounded
from ...report import Column, Fact, MemorySection, Row, Table
from ...sizes import SizeRow
from ...words.wording import clean, percent, plural
from .memory import capacity_text
from .step_memory import memory_unit

TITLE = "Memory over the step"
TENTHS = tuple(float(part) for part in range(0, 101, 10))
"""Shares of the step, percent, whose values are listed."""
BESIDE_TORCH = "What CUDA and libraries take beside torch's allocator is not in it."
CHANGES_ONLY = "The trace states changes only: 0 is what was allocated as the recording began."
NO_RESERVED = "What the allocator reserved is unavailable: the trace does not state it."


def shown_curves(curves: Sequence[MemoryCurve]) -> tuple[MemoryCurve, ...]:
    """Those of GPUs; that of the host where there is no other."""
    on_gpu = tuple(curve for curve in curves if curve.device is not None)
    return on_gpu or tuple(curves)


def memory_charts(curves: Sequence[MemoryCurve], key: str, whose: str = "") -> tuple[Chart, ...]:
    """A chart for each device that is shown.

    Args:
        curves: of one trace.
        key: tells the charts from others of the page.
        whose: which trace it is, where there are several.
    """
    return tuple(
        _chart(curve, f"{key}_{place}", whose) for place, curve in enumerate(shown_curves(curves))
    )


def memory_table(named: Sequence[tuple[str, MemoryCurve]]) -> Table:
    """The figures of curves, a row each; with the name of the trace where there are several."""
    several = len({name for name, _ in named}) > 1
    columns = (
        *((Column(title="trace", left=True),) if several else ()),
        Column(title="device", left=True),
        Column(title="step", left=True),
        Column(title="at the start"),
        Column(title="at the end"),
        Column(title="peak"),
        Column(title="when"),
        Column(title="inside", left=True),
        Column(title="peak reserved"),
    )
    rows = []
    for name, curve in named:
        reserved = curve.peak_reserved_bytes
        cells = (
            _device(curve),
            clean(curve.step) or "the whole recording",
            _bytes(curve, curve.allocated_bytes[0]) if curve.time_ns[0] == 0 else "-",
            _bytes(curve, curve.allocated_bytes[-1]),
            _bytes(curve, curve.peak_bytes),
            f"{percent(_share(curve, curve.peak_ns))}%",
            _inside(curve) or "-",
            "-" if reserved is None else format_bytes(reserved),
        )
        rows.append(Row(cells=(name, *cells) if several else cells))
    notes = ["Measured by the profiler. When: the share of the step on the host."]
    if any(curve.relative for _, curve in named):
        notes.append("Values with a sign are changes since the recording began.")
    return Table(title=TITLE, columns=columns, rows=tuple(rows), notes=tuple(notes))


def _chart(curve: MemoryCurve, key: str, whose: str) -> Chart:
    levels = [level for level in curve.reserved_bytes if level is not None]
    highest = max(*curve.allocated_bytes, *levels, -min(curve.allocated_bytes))
    unit, scale = memory_unit(highest)
    moments = [_share(curve, at) for at in curve.time_ns]
    x = _stairs(moments)
    allocated = Series(
        key="allocated",
        label="allocated since the recording began" if curve.relative else "allocated",
        kind="timeline",
        color=1,
        values=_held(x, curve.allocated_bytes, scale),
        texts=_texts(x, curve.allocated_bytes, curve),
    )
    series = [allocated]
    if levels:
        series.append(
            Series(
                key="reserved",
                label="reserved",
                kind="timeline",
                color=2,
                values=_held(x, curve.reserved_bytes, scale),
                texts=_texts(x, curve.reserved_bytes, curve),
            )
        )
    lowest = min(curve.allocated_bytes) / scale
    return Chart(
        key=key,
        title=", ".join(part for part in (TITLE, whose, _device(curve)) if part),
        x_label="% of the step" if curve.step else "% of the recording",
        x_scale="linear",
        x=tuple(at for at, _ in x),
        x_ticks=TENTHS,
        x_names=tuple(f"{at:.0f}" for at in TENTHS),
        y_label=unit,
        unit=unit,
        y_low=min(0.0, rounded(lowest) or 0.0),
        series=tuple(series),
        marks=(
            Mark(
                axis="x",
                value=rounded(_share(curve, curve.peak_ns)) or 0.0,
                label="peak",
                kind="note",
            ),
        ),
        notes=tuple(_notes(curve, known=bool(levels))),
    )


def _notes(curve: MemoryCurve, *, known: bool) -> list[str]:
    step = clean(curve.step)
    over = step or "the recording"
    if curve.device is not None:
        over += ", on the host's time, which runs ahead of the GPU"
    changes = plural(curve.num_events, "allocation or free", "allocations and frees")
    inside = _inside(curve)
    when = f"at {percent(_share(curve, curve.peak_ns))}% of {step or 'it'}"
    where = f", inside {inside}" if inside else ", outside of operators"
    if curve.peak_ns == 0 and not inside:
        where = ", as it began"
    notes = [
        f"Measured by the profiler over {over}: {changes}.",
        f"Peak {_bytes(curve, curve.peak_bytes)} {when}{where}.",
    ]
    if curve.num_events > len(curve.time_ns):
        notes.append("Drawn: the least and the most of each piece of the step.")
    if curve.relative:
        notes.append(CHANGES_ONLY)
    if curve.device is not None:
        notes += [BESIDE_TORCH] if known else [NO_RESERVED, BESIDE_TORCH]
    notes += [f"{note[0].upper()}{note[1:]}." for note in map(clean, curve.notes)]
    return notes


def _inside(curve: MemoryCurve) -> str:
    """The innermost operator at the peak and the outermost around it."""
    inner, outer = clean(curve.peak_operator), clean(curve.peak_within)
    return f"{inner} of {outer}" if outer else inner


def _device(curve: MemoryCurve) -> str:
    return "CPU" if curve.device is None else f"GPU {curve.device}"


def _bytes(curve: MemoryCurve, num_bytes: int) -> str:
    """Bytes; changes have their sign."""
    sign = "-" if num_bytes < 0 else "+" if curve.relative and num_bytes else ""
    return f"{sign}{format_bytes(abs(num_bytes))}"


def _share(curve: MemoryCurve, at_ns: int) -> float:
    return 100 * at_ns / curve.step_ns


Places = list[tuple[float, int]]
"""Places on the x axis, each with how many moments have been by then."""


def _stairs(moments: Sequence[float]) -> Places:
    """The places of a curve that holds its value from moment to moment, and jumps there."""
    places = {(moments[0], 1), *((at, bisect_right(moments, at)) for at in TENTHS)}
    for number, at in enumerate(moments[1:], 1):
        places |= {(at, number), (at, number + 1)}
    return [(rounded(at) or 0.0, number) for at, number in sorted(places)]


def _held(places: Places, levels: Sequence[int | None], scale: float) -> tuple[float | None, ...]:
    known = [None if level is None else rounded(level / scale) for level in levels]
    return tuple(known[number - 1] if number else None for _, number in places)


def _texts(places: Places, levels: Sequence[int | None], curve: MemoryCurve) -> tuple[str, ...]:
    """What is listed, in words."""
    texts = []
    for at, number in places:
        level = levels[number - 1] if number and at in TENTHS else None
        texts.append("" if level is None else _bytes(curve, level))
    return tuple(texts)


def profiled_section(row: SizeRow | None, record: RunRecord) -> tuple[MemorySection, ...]:
    """What the profile of a size says of its memory; nothing where it recorded no allocations."""
    if row is None or row.profile is None or not row.profile.memory:
        return ()
    curves = row.profile.memory
    figures = memory_table([("", curve) for curve in shown_curves(curves)])
    facts = [("measured", "by the profiler, over the median one of the profiled steps")]
    if record.device is not None:
        facts.append(("limit", capacity_text(record)))
    return (
        MemorySection(
            name=f"batch {row.batch_size}, one profiled step",
            facts=tuple(Fact(label=label, text=clean(text)) for label, text in facts),
            tables=(figures,),
            charts=memory_charts(curves, "profiled_memory"),
        ),
    )
