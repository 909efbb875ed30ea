"""Charts as plain data: what every renderer draws, in the units of its labels.

A chart says what stands where and never how it is painted; `reports/builder/charts/` makes them
from a record, `reports/html/svg.py` and `reports/html/assets/charts.js` draw them.
"""

from __future__ import annotations

from typing import Literal

from ..records import Record

BATCH = "batch size"
SeriesKind = Literal["measured", "estimate", "part", "timeline", "area"]
"""Points with a line; a dashed line; one part of a stacked bar; a line without points; one of
several areas that lie on each other."""

MarkKind = Literal["recommended", "limit", "failed", "note", "phase"]
"""`phase`: something else begins here; its label stands to the right, below."""


class Series(Record, frozen=True, kw_only=True):
    """One line, one part of stacked bars, or one of several areas.

    Attributes:
        values: one for each x of the chart, `None` where nothing was measured.
        low, high: the interval of each value; empty where none is known.
        texts: each value as people read it, with the digits that its spread supports; may be empty.
        color: slot of the palette, from 1.
        dashed: drawn so, to be seen where it covers another line.
    """

    key: str
    label: str
    kind: SeriesKind
    color: int
    values: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    texts: tuple[str, ...] = ()
    dashed: bool = False


class Mark(Record, frozen=True, kw_only=True):
    """A line across the chart at one value of an axis."""

    axis: Literal["x", "y"]
    value: float
    label: str
    kind: MarkKind


class Band(Record, frozen=True, kw_only=True):
    """A stretch of the y axis."""

    low: float
    high: float
    label: str


class Chart(Record, frozen=True, kw_only=True):
    """One chart.

    Attributes:
        key: tells it from the others of its device, `throughput`.
        x: in rising order.
        x_scale: `log` to the base 2, `linear`, or `category` (the x are positions 0, 1, 2 ...).
        x_ticks: where `x_names` stand: the sizes that were tried.
        unit: of the y axis; empty where the values are pure numbers.
        y_low: where the y axis begins; a note says so where it is not 0.
        y_high: where it ends at least, so that charts beside each other have one scale.
        notes: what to know before the chart is believed.
    """

    key: str
    title: str
    x_label: str
    x_scale: Literal["log", "linear", "category"]
    x: tuple[float, ...]
    x_ticks: tuple[float, ...] = ()
    x_names: tuple[str, ...] = ()
    y_label: str
    unit: str
    y_low: float = 0.0
    y_high: float = 0.0
    series: tuple[Series, ...]
    marks: tuple[Mark, ...] = ()
    bands: tuple[Band, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def stacked(self) -> bool:
        """Whether the series are parts that add up."""
        return any(line.kind in ("part", "area") for line in self.series)

    @property
    def areas(self) -> bool:
        """Whether they are areas over a continuous axis."""
        return any(line.kind == "area" for line in self.series)


def rounded(value: float | None) -> float | None:
    """Six significant digits: more than any of these measurements has.

    >>> rounded(1234567.0), rounded(None)
    (1234570.0, None)
    """
    return None if value is None else float(f"{value:.6g}")


def short(value: float) -> str:
    """A value in three digits, for axes and for points without a text of their own.

    >>> short(1234.5), short(0.01234), short(0), short(64.0)
    ('1234', '0.0123', '0', '64')
    """
    if value == 0:
        return "0"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
