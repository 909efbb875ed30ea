"""Marks across a chart and the names of marks and bands."""

from __future__ import annotations

from collections.abc import Sequence

from ..chart import Chart, Mark
from .frame import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Frame,
    Shape,
    bar_width,
    path,
    sums,
    text_at,
)
from .labels import Box, Labels, Place, pieces

ROW = 13
"""Between the base lines of two labels."""


def marks_of(frame: Frame) -> list[Shape]:
    """Lines across the chart; the recommended bar is framed."""
    parts: list[Shape] = []
    base = HEIGHT - BOTTOM
    for mark in _named(frame.chart):
        if mark.axis == "y":
            y = frame.y(mark.value)
            parts.append(path(f"mark {mark.kind}", [(LEFT, y), (WIDTH - RIGHT, y)]))
        elif frame.chart.stacked:
            left, right, top = _bar(frame, mark.value)
            corners = [(left, base), (left, top), (right, top), (right, base)]
            parts.append(path(f"mark {mark.kind} frame", corners))
        else:
            x = frame.x(mark.value)
            parts.append(path(f"mark {mark.kind}", [(x, TOP), (x, base)]))
    return parts


def _named(chart: Chart) -> list[Mark]:
    return [mark for mark in chart.marks if mark.kind != "phase"]


def _bar(frame: Frame, value: float) -> tuple[float, float, float]:
    """Left, right and top of the frame around a bar."""
    at = frame.chart.x.index(value)
    half = bar_width(frame) / 2 + 2
    x = frame.x(value)
    return x - half, x + half, frame.y(sums(frame.chart)[at]) - 2


def names_of(frame: Frame) -> list[Shape]:
    """The names of bands and marks: first of what lies across, then of the recommended size."""
    chart, base = frame.chart, HEIGHT - BOTTOM
    marks = _named(chart)
    upright = [] if chart.stacked else [frame.x(mark.value) for mark in marks if mark.axis == "x"]
    lines = [Box(x - 1, TOP, x + 1, base) for x in upright]
    flat = [frame.y(mark.value) for mark in marks if mark.axis == "y"]
    lines += [Box(LEFT, y - 1, WIDTH - RIGHT, y + 1) for y in flat]
    lines += [
        Box(LEFT, frame.y(band.high), WIDTH - RIGHT, frame.y(band.low)) for band in chart.bands
    ]
    curves = [piece for line in chart.series for piece in pieces(frame.places(line))]
    labels = Labels(Box(LEFT, 0, WIDTH - RIGHT + 2, base), lines, curves)
    names = []
    for band in chart.bands:
        tops = [frame.y(band.high) - 4, frame.y(band.low) + ROW]
        names.append(_put(labels, band.label, "recommended", _along(upright, tops)))
    for mark in sorted(marks, key=lambda mark: (mark.axis != "y", mark.kind != "recommended")):
        if mark.axis == "y":
            tops = [frame.y(mark.value) + ROW, frame.y(mark.value) - 4]
            places = _along(upright, tops)
        elif chart.stacked:
            left, right, top = _bar(frame, mark.value)
            places = [Place((left + right) / 2, top - 4, "middle")]
        else:
            places = _beside(frame.x(mark.value), upright, mark)
        names.append(_put(labels, mark.label, mark.kind, places))
    return names


def _put(labels: Labels, text: str, css: str, places: Sequence[Place]) -> Shape:
    place = labels.put(text, places)
    return text_at(place.x, place.y, text, css, place.anchor)


def _along(upright: Sequence[float], ys: Sequence[float]) -> list[Place]:
    """Places for the name of what lies across: at the left, at the right, beside upright lines."""
    ends = [(LEFT + 5.0, "start"), (WIDTH - RIGHT - 5.0, "end")]
    ends += [end for x in upright for end in ((x + 5, "start"), (x - 5, "end"))]
    return [Place(x, y, anchor) for x, anchor in ends for y in ys]


def _beside(x: float, upright: Sequence[float], mark: Mark) -> list[Place]:
    """Places beside an upright line, then beside the others, for the name says which size it is.

    They begin at the top, for failed sizes at the bottom, for a note half way up.
    """
    base = HEIGHT - BOTTOM
    wanted = {"recommended": TOP + 10.0, "note": base - 0.45 * (base - TOP) - 7}
    start = wanted.get(mark.kind, base - 7.0)
    rows = range(-(base - TOP) // ROW, (base - TOP) // ROW + 1)
    inside = [y for row in rows if TOP + 9 <= (y := start + ROW * row) <= base - 5]
    inside.sort(key=lambda y: abs(y - start))
    return [
        Place(line + 5 * way, y, anchor)
        for line in (x, *(other for other in upright if other != x))
        for y in inside
        for way, anchor in ((1, "start"), (-1, "end"))
    ]
