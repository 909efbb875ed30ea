"""The ground on which charts are drawn: the size of the picture, where values lie on it, shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..chart import Chart, Series

WIDTH, HEIGHT = 440, 260
LEFT, RIGHT, TOP, BOTTOM = 54, 12, 22, 40
"""`assets/chart_marks.js` draws on the same ground; the unit of the y axis stands above it."""
BAR = 0.7
"""Share of its place that a bar takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One element: its tag, its attributes, what it says and what its tooltip says."""

    tag: str
    attributes: dict[str, str]
    text: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """Where values of the axes lie on the picture."""

    chart: Chart
    low: float
    high: float
    bottom: float
    top: float

    def x(self, value: float) -> float:
        """Pixels from the left."""
        low, high = self.low, self.high
        if self.chart.x_scale == "log":
            value, low, high = math.log2(value), math.log2(low), math.log2(high)
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Pixels from the top."""
        share = (value - self.bottom) / (self.top - self.bottom)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def places(self, series: Series) -> list[tuple[float, float]]:
        """Where the values of a line stand; nowhere those of a bar or an area."""
        if series.kind in ("part", "area"):
            return []
        pairs = zip(self.chart.x, series.values, strict=True)
        return [(self.x(x), self.y(y)) for x, y in pairs if y is not None]


def sums(chart: Chart) -> list[float]:
    """The height of each stacked bar."""
    return [sum(line.values[at] or 0.0 for line in chart.series) for at in range(len(chart.x))]


def bar_width(frame: Frame) -> float:
    """Width of one bar, in pixels."""
    return min(60.0, (frame.x(1) - frame.x(0)) * BAR)


def path(css: str, points: Sequence[tuple[float, float]]) -> Shape:
    """A line through points."""
    data = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return shape("path", css, d=data)


def curve(css: str, points: Sequence[tuple[float, float]]) -> Shape:
    """A line through many points, each from the one before it, which takes less text."""
    tenths = [(round(10 * x), round(10 * y)) for x, y in points]
    data = "M{} {}".format(*(number(part / 10) for part in tenths[0]))
    for at, ((x, y), (to_x, to_y)) in enumerate(pairwise(tenths)):
        right, down = number((to_x - x) / 10), number((to_y - y) / 10)
        data += f"{' ' if at else 'l'}{right}{'' if down.startswith('-') else ' '}{down}"
    return shape("path", css, d=data)


def text_at(x: float, y: float, text: str, css: str, anchor: str) -> Shape:
    """A text whose start, middle or end is at the point."""
    classes = css if anchor == "start" else f"{css} {anchor}"
    return shape("text", classes, text=text, x=x, y=y)


def number(value: float) -> str:
    """Pixels to a tenth, without zeros that say nothing."""
    return f"{value:.1f}".removesuffix(".0")


def shape(
    tag: str, css: str, *, text: str = "", title: str = "", **attributes: float | str
) -> Shape:
    """A shape; numbers among its attributes are pixels."""
    shown = {
        key: value if isinstance(value, str) else number(value) for key, value in attributes.items()
    }
    return Shape(tag=tag, attributes={"class": css, **shown}, text=text, title=title)
