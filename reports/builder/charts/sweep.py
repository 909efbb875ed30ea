"""The charts of a sweep: throughput, memory, step time, use of the device, energy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....records import Advice, MemoryLaw, PriorLaw, RunRecord
from ....spread import scaled
from ....units import GIB, MIB, format_bytes, format_share
from ...chart import BATCH, Band, Chart, Mark, MarkKind, Series, rounded, short
from ...sizes import SizeRow, outcome_words
from ...words.outcomes import OUTCOMES
from ...words.wording import beside_value, measured, percent
from .breakdown import step_time

LAW_POINTS = 24
"""Points between the smallest and the largest size at which a law is drawn."""
FARTHEST_LAW, NEAREST_LAW = 64, 2
"""A law is drawn up to this many times the largest size that was tried; up to the smaller number
where the limit lies so high that the curve would be flat beneath it."""
NEAR_CURVE = 3
"""A limit of more than this many times the largest peak is a number beside the chart."""
NOT_DRAWN = {"ok": "not measured"}
"""What is said of a size without a value, where its outcome says too little."""
ENDED_EARLY = {
    "running": "The run had not finished",
    "interrupted": "The run was interrupted",
    "failed": "The run failed",
}
ESTIMATED = "Dashed lines are fitted laws, not measurements."
PREDICTED = (
    "The law of fake steps counts tensors of steps that computed nothing; the measured peaks "
    "corrected it. An estimate."
)


def sweep_charts(record: RunRecord, advice: Advice, rows: Sequence[SizeRow]) -> tuple[Chart, ...]:
    """Everything that is drawn over the batch size; charts without a value are left out."""
    charts = (
        throughput(record, advice, rows),
        memory(record, advice, rows),
        step_time(rows),
        shares(rows),
        energy(advice, rows),
    )
    return tuple(chart for chart in charts if chart is not None)


def throughput(record: RunRecord, advice: Advice, rows: Sequence[SizeRow]) -> Chart | None:
    """Samples per second with intervals, the tolerance band, the law of step time.

    Real tokens per second where these are known, as in the headline.
    """
    known = [row for row in rows if row.samples_per_s is not None]
    if not known:
        return None
    sizes = [row.batch_size for row in known]
    law = advice.time_law
    x = [float(size) for size in sizes]
    if law is not None:
        x = _grid(sizes, [*law.sizes, max(sizes)])
    unit, factor = _rate_unit(advice)
    series = [_rates(x, known, factor)]
    if law is not None:
        start = min(law.sizes)
        values = tuple(
            rounded(law.samples_per_s(size) * factor) if size >= start else None for size in x
        )
        series.append(
            Series(key="time_law", label="law of step time", kind="estimate", color=8,
                   values=values)
        )  # fmt: skip
    bands: tuple[Band, ...] = ()
    best = advice.fastest.samples_per_s if advice.fastest is not None else None
    if best is not None and advice.goal.kind == "knee":
        share = advice.goal.tolerance
        top = best.median * factor
        whose = " of the search" if advice.fastest_is_open else ""
        label = f"within {format_share(share)} of the fastest{whose}"
        bands = (Band(low=top * (1 - share), high=top, label=label),)
    notes = (
        *_left_out(record, rows, known),
        "Whiskers: interval of the median.",
        *((ESTIMATED,) if law is not None else ()),
    )
    return Chart(
        key="throughput",
        title="Throughput",
        x_label=BATCH,
        x_scale="log",
        x=tuple(x),
        **_ticks(rows),
        y_label=unit,
        unit=unit,
        series=tuple(series),
        marks=_marks(advice, rows),
        bands=bands,
        notes=notes,
    )


def memory(record: RunRecord, advice: Advice, rows: Sequence[SizeRow]) -> Chart | None:
    """Peak memory, its laws with the size that they predict, the device's limit.

    The axis is that of the peaks: a limit far above them is said in a note.
    """
    known = [row for row in rows if row.peak_bytes is not None]
    if not known:
        return None
    sizes = [row.batch_size for row in known]
    law, prior = advice.memory_law, advice.prior_law
    limit = record.device.capacity_bytes if record.device is not None else None
    most = max(_peak(row) for row in known)
    near = limit is not None and limit <= NEAR_CURVE * most
    unit, scale = ("GiB", GIB) if max(most, limit or 0) >= GIB else ("MiB", MIB)
    x = [float(size) for size in sizes]
    known_laws = [each for each in (law, prior) if each is not None]
    if known_laws:
        farthest = (FARTHEST_LAW if near else NEAREST_LAW) * max(sizes)
        ends = [min(each.largest_estimate, farthest) for each in known_laws]
        x = _grid(sizes, [*(sizes if law is None else law.sizes), max(sizes), *ends])
    by_size = {row.batch_size: _peak(row) / scale for row in known}
    values = tuple(rounded(by_size.get(int(size))) if size.is_integer() else None for size in x)
    texts = tuple("" if value is None else f"{value:.3g} {unit}" for value in values)
    series = [
        Series(key="peak", label="measured peak", kind="measured", color=1, values=values,
               texts=texts)
    ]  # fmt: skip
    marks = list(_marks(advice, rows))
    notes: tuple[str, ...] = ()
    if law is not None:
        series.append(_memory_law(law, x, scale))
        notes = (ESTIMATED,)
    if prior is not None:
        series.append(_prior_law(prior, x, scale))
        notes = (*notes, PREDICTED)
    fit = ""
    if known_laws and known_laws[0].largest_estimate >= max(sizes):
        largest = known_laws[0].largest_estimate
        fit = f"{largest} fit (estimate)"
        if near:
            marks.append(Mark(axis="x", value=largest, label=fit, kind="note"))
    if limit is not None and near:
        marks.append(
            Mark(axis="y", value=limit / scale, label=f"limit {short(limit / scale)} {unit}",
                 kind="limit")
        )  # fmt: skip
    elif limit is not None:
        above = f"The limit, {format_bytes(limit)}, lies above this axis"
        times = f"{short(limit / most)} times the largest peak" if most else ""
        notes = (f"{', '.join(filter(None, (above, times)))}{f'; {fit}' if fit else ''}.", *notes)
    notes = (*_left_out(record, rows, known), *notes)
    return Chart(
        key="memory",
        title="Peak memory",
        x_label=BATCH,
        x_scale="log",
        x=tuple(x),
        **_ticks(rows),
        y_label=unit,
        unit=unit,
        series=tuple(series),
        marks=tuple(marks),
        notes=notes,
    )


def shares(rows: Sequence[SizeRow]) -> Chart | None:
    """How much of a GPU was used: busy, SM efficiency, occupancy, tensor cores.

    What a CPU's operators take is a part of the chart of the step's time.
    """
    fields: tuple[tuple[str, str, Callable[[SizeRow], float | None]], ...] = (
        ("busy_pct", "busy: anything ran", lambda row: row.profiled("busy_pct")),
        ("sm_efficiency_pct", "SM efficiency, at most",
         lambda row: row.profiled("sm_efficiency_pct")),
        ("occupancy_pct", "achieved occupancy, estimated",
         lambda row: row.profiled("occupancy_pct")),
        ("tensor_core_pct", "kernel time surely on tensor cores",
         lambda row: row.profiled("tensor_core_pct")),
        ("utilization_pct", "NVML utilisation", lambda row: _counter(row, "utilization_pct")),
        ("sm_active_pct", "SMs active (counter)", lambda row: _counter(row, "sm_active_pct")),
    )  # fmt: skip
    known = [row for row in rows if any(value(row) is not None for _, _, value in fields)]
    if not known:
        return None
    series = []
    for color, (key, label, value) in enumerate(fields, start=1):
        values = tuple(rounded(value(row)) for row in known)
        if any(value is not None for value in values):
            texts = tuple("" if value is None else f"{percent(value)}%" for value in values)
            series.append(
                Series(key=key, label=label, kind="measured", color=color, values=values,
                       texts=texts)
            )  # fmt: skip
    note = "NVML's utilisation is the share of time in which any kernel ran, however small."
    return Chart(
        key="shares",
        title="Use of the device",
        x_label=BATCH,
        x_scale="log",
        x=tuple(float(row.batch_size) for row in known),
        **_ticks(known),
        y_label="%",
        unit="%",
        series=tuple(series),
        notes=(note,) if any(line.key == "utilization_pct" for line in series) else (),
    )


def energy(advice: Advice, rows: Sequence[SizeRow]) -> Chart | None:
    """Joules per sample by the GPU's own counters."""
    known = [(row, 1 / row.samples_per_joule) for row in rows if row.samples_per_joule]
    if not known:
        return None
    unit, factor = ("mJ", 1e3) if max(value for _, value in known) < 1 else ("J", 1.0)
    values = tuple(rounded(value * factor) for _, value in known)
    chosen = advice.recommended
    marks = () if chosen is None else (_recommended(chosen.batch_size),)
    return Chart(
        key="energy",
        title="Energy per sample",
        x_label=BATCH,
        x_scale="log",
        x=tuple(float(row.batch_size) for row, _ in known),
        **_ticks([row for row, _ in known]),
        y_label=f"{unit} per sample",
        unit=unit,
        series=(
            Series(
                key="joule_per_sample",
                label="by the GPU's counters",
                kind="measured",
                color=1,
                values=values,
                texts=tuple(f"{value or 0:.3g} {unit}" for value in values),
            ),
        ),
        marks=marks,
    )


def _rate_unit(advice: Advice) -> tuple[str, float]:
    """The unit in which speeds are drawn, and how much of it a sample is."""
    for choice in (advice.recommended, *advice.sizes):
        if choice is not None and choice.real_tokens_per_s and choice.samples_per_s:
            return "real tokens/s", choice.real_tokens_per_s.median / choice.samples_per_s.median
    return "samples/s", 1.0


def _rates(x: Sequence[float], rows: Sequence[SizeRow], factor: float) -> Series:
    by_size = {
        float(row.batch_size): row.samples_per_s and scaled(row.samples_per_s, factor)
        for row in rows
    }
    rates = [by_size.get(size) for size in x]
    return Series(
        key="samples_per_s",
        label="measured",
        kind="measured",
        color=1,
        values=tuple(None if rate is None else rounded(rate.median) for rate in rates),
        low=tuple(None if rate is None else rounded(rate.low) for rate in rates),
        high=tuple(None if rate is None else rounded(rate.high) for rate in rates),
        texts=tuple("" if rate is None else beside_value(*measured(rate)) for rate in rates),
    )


def _memory_law(law: MemoryLaw, x: Sequence[float], scale: float) -> Series:
    start = min(law.sizes)  # below the fitted sizes the peak may lie on a floor
    return Series(
        key="memory_law",
        label="law of memory",
        kind="estimate",
        color=8,
        values=tuple(
            rounded((law.fixed_bytes + law.slope_bytes * size) / scale) if size >= start else None
            for size in x
        ),
    )


def _prior_law(law: PriorLaw, x: Sequence[float], scale: float) -> Series:
    return Series(
        key="prior_law",
        label="law of fake steps, corrected" if law.corrected_by else "law of fake steps",
        kind="estimate",
        color=7,
        values=tuple(rounded(law.peak_bytes(size) / scale) for size in x),
    )


def _grid(sizes: Sequence[int], ends: Sequence[int]) -> list[float]:
    """The sizes and evenly spaced whole numbers between the ends, on the log scale."""
    low, high = max(1, min(ends)), max(ends)
    steps = [low * (high / low) ** (number / LAW_POINTS) for number in range(LAW_POINTS + 1)]
    return sorted({float(size) for size in sizes} | {float(round(step)) for step in steps})


def _ticks(rows: Sequence[SizeRow]) -> dict[str, Any]:
    sizes = [row.batch_size for row in rows]
    return {
        "x_ticks": tuple(float(size) for size in sizes),
        "x_names": tuple(str(size) for size in sizes),
    }


def _marks(advice: Advice, rows: Sequence[SizeRow]) -> tuple[Mark, ...]:
    """The recommended size, and the sizes that failed."""
    marks = []
    if advice.recommended is not None:
        marks.append(_recommended(advice.recommended.batch_size))
    for row in rows:
        failed = row.failed_later if row.trial.ran else row.trial
        if failed is not None and failed.outcome not in ("ok", "interrupted"):
            label = f"{row.batch_size}: {OUTCOMES[failed.outcome][0]}"
            marks.append(Mark(axis="x", value=row.batch_size, label=label, kind="failed"))
    return tuple(marks)


def _left_out(
    record: RunRecord, rows: Sequence[SizeRow], known: Sequence[SizeRow]
) -> tuple[str, ...]:
    """Sizes that have neither a point nor a mark, and that a run ended before it was done."""
    missing = [
        f"{row.batch_size} ({NOT_DRAWN.get(words, words)})"
        for row in rows
        for words in [outcome_words(row, short=False)]
        if row not in known and (row.trial.ran or row.trial.outcome in ("ok", "interrupted"))
    ]
    early = ENDED_EARLY.get(record.state)
    return (
        *([f"{early}: sizes that it had not tried are missing."] if early else []),
        *([f"Not drawn: {', '.join(missing)}."] if missing else []),
    )


def _recommended(size: int) -> Mark:
    kind: MarkKind = "recommended"
    return Mark(axis="x", value=size, label=f"use {size}", kind=kind)


def _peak(row: SizeRow) -> int:
    return row.peak_bytes or 0


def _counter(row: SizeRow, field: str) -> float | None:
    value: float | None = None if row.counters is None else getattr(row.counters, field)
    return value
