"""Charts as shapes of SVG: what is seen without JavaScript, and on paper.

Geometry only: the template writes the markup, so that every text passes its escaping.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..chart import Chart, Mark, Series, short
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
    curve,
    number,
    path,
    shape,
    sums,
    text_at,
)
from .labels import CHARACTER, Box, Labels, Place, pieces

ROOM, ROOM_FOR_NAMES = 1.08, 1.16
"""The top of the y axis over the largest value."""


def shapes(chart: Chart, *, titles: bool = True) -> list[Shape]:
    """The picture of a chart, in the order in which it is painted.

    Args:
        titles: whether points and bars have tooltips.
    """
    frame = _frame(chart)
    parts = [*_bands(frame), *_y_axis(frame), *_x_axis(frame)]
    if not chart.areas:
        parts += _phases(frame)
    if chart.areas:
        parts += [*_areas(frame), *_phases(frame)]
    elif chart.stacked:
        parts += _bars(frame)
    else:
        for series in chart.series:
            parts += _line(frame, series)
    parts += [*marks_of(frame), *names_of(frame)]
    return parts if titles else _merged(parts)


def _merged(parts: list[Shape]) -> list[Shape]:
    """Points and bars of one colour as one path each: a tenth of the text, without tooltips."""
    paths: dict[str, Shape] = {}
    pens: dict[str, tuple[float, float]] = {}
    kept: list[Shape] = []
    for mark in parts:
        place = mark.attributes
        if mark.tag == "circle":
            css = place["class"].replace("f", "dots s")
            x, y = float(place["cx"]), float(place["cy"])
            from_x, from_y = pens.get(css, (0.0, 0.0))
            down = number(y - from_y)
            data = f"m{number(x - from_x)}{'' if down.startswith('-') else ' '}{down}h0"
            pens[css] = x, y
        elif mark.tag == "rect" and place["class"] != "band":
            css = place["class"]
            width, height = place["width"], place["height"]
            data = f"M{place['x']} {place['y']}h{width}v{height}h-{width}z"
        else:
            kept.append(mark)
            continue
        if css not in paths:
            paths[css] = shape("path", css, d="")
            kept.append(paths[css])
        paths[css].attributes["d"] += data
    return kept


def _frame(chart: Chart) -> Frame:
    xs = [*chart.x, *(mark.value for mark in chart.marks if mark.axis == "x")]
    low, high = min(xs), max(xs)
    if chart.x_scale == "log":
        low, high = low / 1.25, high * 1.25
    elif chart.x_scale == "category":
        # The parts of a bar that stands alone are named beside it.
        low, high = (low - 0.3, high + 1.0) if low == high else (low - 0.6, high + 0.6)
    else:
        low, high = min(low, 0.0), max(high, low + 1)
    return Frame(chart, low, high, chart.y_low, _top(chart))


def _top(chart: Chart) -> float:
    values = [chart.y_high, *(mark.value for mark in chart.marks if mark.axis == "y")]
    values += [band.high for band in chart.bands]
    if chart.stacked:
        values += sums(chart)
    else:
        for series in chart.series:
            values += [value for value in (*series.values, *series.high) if value is not None]
    top = max([*values, *([100.0] if chart.unit == "%" else [])]) - chart.y_low
    # Room above a limit, a band, a bar or a curve for the names that stand there.
    named = (
        chart.bands
        or chart.y_high
        or any(chart.stacked or mark.axis == "y" or mark.kind == "phase" for mark in chart.marks)
    )
    room = ROOM_FOR_NAMES if named else ROOM
    return chart.y_low + (top * room if top > 0 else 1.0)


def _bands(frame: Frame) -> list[Shape]:
    parts = []
    for band in frame.chart.bands:
        top, bottom = frame.y(band.high), frame.y(band.low)
        parts.append(
            shape("rect", "band", x=LEFT, y=top, width=WIDTH - LEFT - RIGHT,
                   height=max(1.0, bottom - top))
        )  # fmt: skip
    return parts


def _y_axis(frame: Frame) -> list[Shape]:
    ticks = [(tick, frame.y(tick)) for tick in nice_ticks(frame.bottom, frame.top)]
    lines = "".join(f"M{LEFT} {number(y)}H{WIDTH - RIGHT}" for _, y in ticks)
    parts = [shape("path", "grid", d=lines)]
    parts += [text_at(LEFT - 6, y + 4, _name(value), "dim", "end") for value, y in ticks]
    parts.append(text_at(4, 11, frame.chart.y_label, "dim", "start"))
    return parts


def _x_axis(frame: Frame) -> list[Shape]:
    chart, base = frame.chart, HEIGHT - BOTTOM
    ticks = list(zip(chart.x_ticks, chart.x_names, strict=True))
    if not ticks:
        ticks = [(tick, _name(tick)) for tick in nice_ticks(frame.low, frame.high)]
    lines = f"M{LEFT} {base}H{WIDTH - RIGHT}"
    lines += "".join(f"M{number(frame.x(value))} {base}v4" for value, _ in ticks)
    parts = [shape("path", "axis", d=lines)]
    marked = {mark.value for mark in chart.marks if mark.kind == "recommended"}
    taken: list[tuple[float, float]] = []
    for value, name in sorted(ticks, key=lambda tick: (tick[0] not in marked, tick[0])):
        half = len(name) * CHARACTER / 2
        x = min(frame.x(value), WIDTH - half - 4)  # a long name stays in the picture
        if all(abs(x - other) > half + wide + 8 for other, wide in taken):
            parts.append(text_at(x, base + 16, name, "dim", "middle"))
            taken.append((x, half))
    parts.append(text_at((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, chart.x_label, "dim", "middle"))
    return parts


MILLION = 1e6
"""More digits have no room beside an axis."""


def _name(tick: float) -> str:
    """A value of an axis in the digits that tell it from its neighbours, large ones in millions."""
    if abs(tick) >= MILLION:
        return f"{_name(tick / MILLION)}M"
    name = short(tick)
    return name if float(name) == tick else f"{tick:.6g}"


def _bars(frame: Frame) -> list[Shape]:
    chart, parts = frame.chart, []
    width = bar_width(frame)
    for at, where in enumerate(chart.x):
        below = 0.0
        for series in chart.series:
            value = series.values[at] or 0.0
            top, bottom = frame.y(below + value), frame.y(below)
            below += value
            if bottom - top < 0.05:
                continue
            name = chart.x_names[at] if chart.x_names else short(where)
            said = f"{name}: {series.label} {_said(series, at)}"
            parts.append(
                shape("rect", f"f{series.color}", title=said, x=frame.x(where) - width / 2,
                       y=top, width=width, height=bottom - top)
            )  # fmt: skip
    return [*parts, *_names_of_parts(frame)] if len(chart.x) == 1 else parts


def _names_of_parts(frame: Frame) -> list[Shape]:
    """Beside a bar that stands alone, each part with its value; never on each other."""
    below, middles = 0.0, []
    for series in frame.chart.series:
        value = series.values[0] or 0.0
        if value > 0:
            at = (frame.y(below) + frame.y(below + value)) / 2
            middles.append((at + 4, f"{series.label} {_said(series, 0)}"))
        below += value
    x = frame.x(frame.chart.x[0]) + bar_width(frame) / 2 + 8
    names: list[Shape] = []
    free = HEIGHT - BOTTOM - 2.0 + ROW
    for number_above, (at, name) in zip(range(len(middles) - 1, -1, -1), middles, strict=True):
        # Below the top there has to be room for those that follow.
        free = min(free - ROW, max(at, TOP + 10.0 + number_above * ROW))
        names.append(text_at(x, free, name, "dim", "start"))
    return names


def _areas(frame: Frame) -> list[Shape]:
    """Areas on each other, each from the one below up to its own sum."""
    chart, parts = frame.chart, []
    below = [0.0] * len(chart.x)
    for series in chart.series:
        above = [base + (value or 0.0) for base, value in zip(below, series.values, strict=True)]
        upper = [(frame.x(x), frame.y(y)) for x, y in zip(chart.x, above, strict=True)]
        lower = [(frame.x(x), frame.y(y)) for x, y in zip(chart.x, below, strict=True)]
        points = "L".join(f"{number(x)} {number(y)}" for x, y in [*upper, *reversed(lower)])
        parts.append(shape("path", f"f{series.color}", title=series.label, d=f"M{points}Z"))
        below = above
    return parts


def _line(frame: Frame, series: Series) -> list[Shape]:
    chart = frame.chart
    points = [
        (at, x, y) for at, (x, y) in enumerate(zip(chart.x, series.values, strict=True))
        if y is not None
    ]  # fmt: skip
    dash = " dash" if series.kind == "estimate" or series.dashed else ""
    places = frame.places(series)
    parts = [curve(f"line s{series.color}{dash}", places)] if len(places) > 1 else []
    for at, x, y in points:
        if series.kind != "measured":
            break
        parts += _whisker(frame, series, at, x)
        name = f"{chart.x_label} {short(x)}: {_said(series, at)}"
        parts.append(
            shape("circle", f"f{series.color}", title=f"{series.label}, {name}",
                   cx=frame.x(x), cy=frame.y(y), r=3.5)
        )  # fmt: skip
    return parts


def _whisker(frame: Frame, series: Series, at: int, x: float) -> list[Shape]:
    low = series.low[at] if series.low else None
    high = series.high[at] if series.high else None
    if low is None or high is None:
        return []
    place, top, bottom = frame.x(x), frame.y(high), frame.y(low)
    left, upper, lower = number(place - 4), number(top), number(bottom)
    data = f"M{left} {upper}h8m-4 0V{lower}M{left} {lower}h8"
    return [shape("path", f"whisker s{series.color}", d=data)]


def _said(series: Series, at: int) -> str:
    if series.texts:
        return series.texts[at]
    value = series.values[at]
    return "not known" if value is None else short(value)


def _phases(frame: Frame) -> list[Shape]:
    """Where something else begins: a line, its label at the top, above the curves; a label that
    would cover another is left out."""
    parts: list[Shape] = []
    base, free = HEIGHT - BOTTOM, 0.0
    for mark in frame.chart.marks:
        if mark.kind == "phase":
            x = frame.x(mark.value)
            css = "mark" if frame.chart.areas else "grid"
            parts.append(path(css, [(x, TOP), (x, base)]))
            if x >= free:
                parts.append(text_at(x + 3, TOP + 10, mark.label, "dim", "start"))
                free = x + 8 + len(mark.label) * CHARACTER
    return parts


def nice_ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round values between both, about `wanted` of them.

    >>> nice_ticks(0, 23.0), nice_ticks(19.3, 20.1)
    ([0.0, 5.0, 10.0, 15.0, 20.0], [19.4, 19.6, 19.8, 20.0])
    """
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    power = 10.0 ** math.floor(math.log10(span / wanted))
    step = next(
        factor * power for factor in (1, 2, 5, 10, 20) if factor * power * wanted >= span * 0.85
    )
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(step * number, 12) for number in range(first, last + 1)]


# Marks across a chart and the names of marks and bands.

ROW = 14
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
