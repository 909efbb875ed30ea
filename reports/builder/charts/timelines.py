"""Charts over time, and charts that lay several devices or runs over each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ....units import GIB
from ...chart import Chart, Mark, Series, rounded, short

TIMELINE_POINTS = 400
"""Samples beyond this many are averaged in groups; all devices of a run share them."""
QUANTITIES = (
    ("utilization_pct", "NVML utilisation", "%", 1.0),
    ("power_w", "Power", "W", 1.0),
    ("memory_used_bytes", "Memory used on the device", "GiB", GIB),
    ("sm_clock_mhz", "SM clock", "MHz", 1.0),
    ("temperature_c", "Temperature", "°C", 1.0),
)
NUM_SHORT = 3
"""Quantities, the first ones, that are shown where there are several devices."""


def timelines(
    samples: Sequence[Mapping[str, Any]],
    num_devices: int = 1,
    sizes: Mapping[int, int] | None = None,
) -> tuple[Chart, ...]:
    """Draws NVML's readings over time, one chart for each quantity; none without samples.

    Args:
        samples: rows of `samples.jsonl` that have `time_s`, in order.
        num_devices: of the run; more of them are shown in less detail.
        sizes: batch size of each trial by its ordinal; where one begins is marked,
            on a single device.
    """
    rows = [sample for sample in samples if isinstance(sample.get("time_s"), (int, float))]
    if len(rows) < 2:
        return ()
    group = math.ceil(len(rows) * num_devices / TIMELINE_POINTS)
    groups = [rows[start : start + group] for start in range(0, len(rows), group)]
    begin = float(rows[0]["time_s"])
    x = tuple(rounded(_mean(group, "time_s", 1.0)) or 0.0 for group in groups)
    x = tuple(rounded(x_value - begin) or 0.0 for x_value in x)
    marks = _phases(rows, begin, sizes or {}) if num_devices == 1 else ()
    note: tuple[str, ...] = (
        ("Numbers at the top: the batch size that is being measured.",) if marks else ()
    )
    note += (f"Each point is the mean of {group} samples.",) if group > 1 else ()
    charts = []
    for key, title, unit, scale in QUANTITIES if num_devices == 1 else QUANTITIES[:NUM_SHORT]:
        values = tuple(_mean(group, key, scale) for group in groups)
        if any(value is not None for value in values):
            charts.append(
                Chart(
                    key=f"timeline_{key}",
                    title=title,
                    x_label="seconds since the first sample",
                    x_scale="linear",
                    x=x,
                    y_label=unit,
                    unit=unit,
                    series=(Series(key=key, label=title, kind="timeline", color=1, values=values),),
                    marks=marks,
                    notes=note,
                )
            )
    return tuple(charts)


def _phases(
    rows: Sequence[Mapping[str, Any]], begin: float, sizes: Mapping[int, int]
) -> tuple[Mark, ...]:
    """Where the samples of another batch size begin."""
    marks: list[Mark] = []
    last: int | None = None
    for row in rows:
        trial = row.get("trial")
        size = sizes.get(trial) if isinstance(trial, int) else None
        if size is not None and size != last:
            at = rounded(float(row["time_s"]) - begin) or 0.0
            marks.append(Mark(axis="x", value=at, label=str(size), kind="phase"))
            last = size
    return tuple(marks)


def overlay(key: str, charts: Sequence[tuple[str, Chart]], title: str = "") -> Chart | None:
    """The first measured line of several charts in one: devices or runs side by side.

    Args:
        charts: a name for each, with the chart; those in another unit than the first are left out.
    """
    same = [named for named in charts if named[1].unit == charts[0][1].unit] if charts else []
    if not same:
        return None
    first = same[0][1]
    lines = []
    for name, chart in same:
        line = next((line for line in chart.series if line.kind != "estimate"), None)
        if line is not None:
            lines.append((name, chart, line))
    x = sorted({at for _, chart, line in lines for at, value in _points(chart, line)})
    series = []
    for color, (name, chart, line) in enumerate(lines):
        at = {x_value: position for position, x_value in enumerate(chart.x)}
        pick = [at.get(x_value) for x_value in x]
        series.append(
            Series(
                key=f"{line.key}_{color}",
                label=name,
                kind=line.kind,
                color=color % 8 + 1,
                dashed=color % 2 == 1,
                values=_picked(line.values, pick),
                low=_picked(line.low, pick) if line.low else (),
                high=_picked(line.high, pick) if line.high else (),
                texts=tuple("" if place is None else line.texts[place] for place in pick)
                if line.texts
                else (),
            )
        )
    return Chart(
        key=key,
        title=title or first.title,
        x_label=first.x_label,
        x_scale=first.x_scale,
        x=tuple(x),
        x_ticks=tuple(x) if first.x_scale == "log" else (),
        x_names=tuple(short(x_value) for x_value in x) if first.x_scale == "log" else (),
        y_label=first.y_label,
        unit=first.unit,
        series=tuple(series),
        marks=tuple(mark for mark in first.marks if mark.kind == "limit"),
    )


def _points(chart: Chart, line: Series) -> list[tuple[float, float]]:
    pairs = zip(chart.x, line.values, strict=True)
    return [(at, value) for at, value in pairs if value is not None]


def _picked(values: Sequence[float | None], pick: Sequence[int | None]) -> tuple[float | None, ...]:
    return tuple(None if place is None else values[place] for place in pick)


def _mean(rows: Sequence[Mapping[str, Any]], key: str, scale: float) -> float | None:
    values = [row[key] for row in rows if isinstance(row.get(key), (int, float))]
    return rounded(sum(values) / len(values) / scale) if values else None
