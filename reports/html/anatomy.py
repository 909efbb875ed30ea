"""Pictures of steps: the drawing that is in the file, and the data that the script zooms with.

Lanes are as wide as the page: a lane's blocks stand in a drawing of its own that is stretched, its
names do not. The script writes the same paths again for the part that is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ...records.anatomy import Label, Lane, Spans
from ..anatomy import Anatomies, RanksPicture, StepPicture, TracePicture
from ..words.anatomy import KINDS
from .svg import nice_ticks

UNITS = 2000
"""Width of a lane's drawing."""
ROW, MARK = 11, 4
"""Heights in pixels: of a row, and of the line below the rows where the critical path runs."""
NAMED = 0.07
"""Part of the picture that a block must take to carry its name in the drawing."""
FILLED = 0.6
"""A block of several events that take less of it is drawn paler."""
PALE = " a-pale"
MAX_NAMED = 24
"""Names in one row."""
_UNITS = (("s", 10**9), ("ms", 10**6), ("µs", 10**3), ("ns", 1))
_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_FIVE_BITS = 31
SCRIPT, STYLE = "anatomy.js", "anatomy.css"


class Path(msgspec.Struct, frozen=True):
    """The blocks of one kind in one row."""

    kind: str
    data: str


class Name(msgspec.Struct, frozen=True):
    """A name on a block; places in percent of the width, `y` in pixels."""

    left: str
    width: str
    y: int
    text: str


class Drawn(msgspec.Struct, frozen=True):
    """A lane as it is in the file."""

    title: str
    kind: str
    height: int
    rows: int
    paths: list[Path]
    way: str
    names: list[Name]
    straggler: bool = False


class Figure(msgspec.Struct, frozen=True):
    """A picture as it is in the file."""

    title: str
    number: int
    lanes: list[Drawn]
    ticks: list[tuple[str, str]]
    keys: list[tuple[str, str]]
    notes: tuple[str, ...]


class Group(msgspec.Struct, frozen=True):
    """The pictures that share their data."""

    name: str
    figures: list[Figure]
    data: str
    tables: tuple[Any, ...] = ()
    notes: tuple[str, ...] = ()
    help: tuple[str, ...] = ()
    unavailable: str = ""


def groups(anatomies: Anatomies) -> list[Group]:
    """All pictures of a page, in order."""
    found = []
    if anatomies.ranks is not None:
        found.append(_of_ranks(anatomies.ranks))
    found += [_of_trace(trace) for trace in anatomies.traces]
    return found


def _of_trace(trace: TracePicture) -> Group:
    pool = _Pool()
    numbers = [pool.label(label) for label in trace.labels]
    data = [_data(picture, numbers) for picture in trace.pictures]
    return Group(
        name=trace.name,
        figures=[
            _figure(picture, number, trace.labels) for number, picture in enumerate(trace.pictures)
        ],
        data=_json(pool, data),
        tables=trace.tables,
        notes=trace.notes,
        help=trace.help,
        unavailable=trace.unavailable,
    )


def _of_ranks(picture: RanksPicture) -> Group:
    """Strips of ranks are lanes of one picture; each has labels of its own."""
    pool = _Pool()
    lanes, drawn = [], []
    for strip in picture.strips:
        numbers = [pool.label(label) for label in strip.labels]
        rows = tuple(_moved(row, strip.begins_ns) for row in strip.lane.rows)
        lane = msgspec.structs.replace(strip.lane, name=strip.name, rows=rows)
        lanes.append({"n": lane.name, "r": [_flat(row, numbers) for row in rows], "y": ""})
        shown = _lane(lane, picture.window_ns, strip.labels)
        drawn.append(msgspec.structs.replace(shown, straggler=strip.straggler))
    figure = Figure(
        title=picture.title,
        number=0,
        lanes=drawn,
        ticks=_ticks(picture.window_ns),
        keys=_keys(drawn),
        notes=picture.notes,
    )
    data = _json(pool, [{"w": picture.window_ns, "lanes": lanes}])
    return Group(name="", figures=[figure], data=data)


def _moved(row: Spans, by: int) -> Spans:
    return msgspec.structs.replace(
        row,
        start_ns=tuple(start + by for start in row.start_ns),
        end_ns=tuple(end + by for end in row.end_ns),
    )


# The data.


class _Pool:
    """Names and labels, each once."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {"": 0}
        self.kinds: dict[str, int] = {}
        self.labels: dict[tuple[int, ...], int] = {}

    def label(self, label: Label) -> int:
        kind = self.kinds.setdefault(label.kind, len(self.kinds))
        texts = [label.name, label.operator, label.code, label.waits_for]
        while texts and not texts[-1]:
            texts.pop()  # a label ends with the last name that it has
        return self.labels.setdefault((kind, *map(self._name, texts)), len(self.labels))

    def _name(self, text: str) -> int:
        return self.names.setdefault(text, len(self.names))


def _data(picture: StepPicture, numbers: Sequence[int]) -> dict[str, Any]:
    lanes = [
        {
            "n": lane.name,
            "r": [_flat(row, numbers) for row in lane.rows],
            "y": _pairs(lane.way),
        }
        for lane in picture.step.lanes
    ]
    return {"w": picture.step.window_ns, "lanes": lanes}


def _flat(row: Spans, numbers: Sequence[int]) -> str:
    """Each block as: since the end of the one before, length, label; of several events the label
    is its complement, and their number and how long they took together follow."""
    flat: list[int] = []
    before = 0
    for start, end, label, count, total in zip(
        row.start_ns, row.end_ns, row.label, row.num_events, row.total_ns, strict=True
    ):
        flat += (start - before, end - start)
        flat += (numbers[label],) if count == 1 else (~numbers[label], count, total)
        before = end
    return packed(flat)


def _pairs(spans: Spans) -> str:
    """Picture without labels."""
    flat: list[int] = []
    before = 0
    for start, end in zip(spans.start_ns, spans.end_ns, strict=True):
        flat += (start - before, end - start)
        before = end
    return packed(flat)


def packed(numbers: Iterable[int]) -> str:
    """Whole numbers as text, the small ones short: five bits a character, the lowest first.

    The sixth bit says that more follow, the lowest of all is the sign: what source maps of scripts
    are written in.

    >>> packed([0, 1, -1, 16])
    'ACDgB'
    """
    text = []
    for number in numbers:
        rest = number << 1 if number >= 0 else (-number << 1) | 1
        while rest > _FIVE_BITS:
            text.append(_DIGITS[(rest & _FIVE_BITS) | (_FIVE_BITS + 1)])
            rest >>= 5
        text.append(_DIGITS[rest])
    return "".join(text)


def _json(pool: _Pool, pictures: list[dict[str, Any]]) -> str:
    """JSON that may stand inside a script element: no `<`, whatever the texts hold."""
    data = {
        "kinds": list(pool.kinds),
        "words": [KINDS[kind] for kind in pool.kinds],
        "names": list(pool.names),
        "labels": list(pool.labels),
        "pictures": pictures,
    }
    text = msgspec.json.encode(data).decode()
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


# The drawing.


def _figure(picture: StepPicture, number: int, labels: Sequence[Label]) -> Figure:
    step = picture.step
    lanes = [_lane(lane, step.window_ns, labels) for lane in step.lanes]
    return Figure(
        title=picture.title,
        number=number,
        lanes=lanes,
        ticks=_ticks(step.window_ns),
        keys=_keys(lanes),
        notes=picture.notes,
    )


def _keys(lanes: Sequence[Drawn]) -> list[tuple[str, str]]:
    """Kind and word of all that is drawn."""
    kinds = {path.kind.removesuffix(PALE) for lane in lanes for path in lane.paths}
    return [(css(kind), word) for kind, word in KINDS.items() if css(kind) in kinds]


def css(kind: str) -> str:
    """The class of a kind."""
    return kind.replace(" ", "-")


def _lane(lane: Lane, window: int, labels: Sequence[Label]) -> Drawn:
    paths, names = [], []
    for at, row in enumerate(lane.rows):
        y = at * ROW + ROW // 2
        by_class: dict[str, list[tuple[int, int]]] = {}
        for start, end, label, total in zip(
            row.start_ns, row.end_ns, row.label, row.total_ns, strict=True
        ):
            pale = PALE if total < FILLED * (end - start) else ""
            by_class.setdefault(css(labels[label].kind) + pale, []).append((start, end))
        paths += [Path(name, _path(spans, window, y)) for name, spans in by_class.items()]
        names += _names(row, window, at, labels)
    way = list(zip(lane.way.start_ns, lane.way.end_ns, strict=True))
    height = len(lane.rows) * ROW + MARK
    return Drawn(
        title=lane.name,
        kind=lane.kind,
        height=height,
        rows=len(lane.rows),
        paths=paths,
        way=_path(way, window, height - MARK // 2) if way else "",
        names=names,
    )


def _path(spans: Sequence[tuple[int, int]], window: int, y: int) -> str:
    """Blocks as strokes; those that touch are one, none is too short to be seen."""
    data: list[str] = []
    left = right = -1
    pen = 0
    for start, end in spans:
        begin = min(start * UNITS // window, UNITS - 1)
        stop = max(begin + 1, -(-end * UNITS // window))
        if begin <= right:
            right = max(right, stop)
            continue
        if right > left:
            data.append(_stroke(pen, left, right, y, first=not data))
            pen = right
        left, right = begin, stop
    if right > left:
        data.append(_stroke(pen, left, right, y, first=not data))
    return "".join(data)


def _stroke(pen: int, left: int, right: int, y: int, *, first: bool) -> str:
    move = f"M{left} {y}" if first else f"m{left - pen} 0"
    return f"{move}h{right - left}"


def _names(row: Spans, window: int, at: int, labels: Sequence[Label]) -> list[Name]:
    wide = [
        (start, end, label)
        for start, end, label, count in zip(
            row.start_ns, row.end_ns, row.label, row.num_events, strict=True
        )
        if end - start >= NAMED * window and count == 1
    ]
    return [
        Name(
            left=_percent(start / window),
            width=_percent((end - start) / window),
            y=at * ROW,
            text=text,
        )
        for start, end, label in wide[:MAX_NAMED]
        if (text := labels[label].name or KINDS[labels[label].kind])
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + "%"


def _ticks(window: int) -> list[tuple[str, str]]:
    """(place, text) of times along the picture."""
    unit, scale = next((unit, scale) for unit, scale in _UNITS if window >= scale or scale == 1)
    top = window / scale
    ticks = [tick for tick in nice_ticks(top, 6) if tick <= 0.97 * top]
    return [(_percent(tick / top), f"{tick:g} {unit}") for tick in ticks]


class Page(NamedTuple):
    """What a page needs to show pictures.

    Attributes:
        values: for the templates.
        style, script: assets; empty where there is no picture.
    """

    values: Mapping[str, Any]
    style: tuple[str, ...]
    script: tuple[str, ...]


def page_parts(anatomies: Anatomies | None) -> Page:
    """What a page needs to show pictures, or none."""
    drawn = [] if anatomies is None else groups(anatomies)
    values = {
        "anatomy_groups": drawn,
        "anatomy_notes": () if anatomies is None else anatomies.notes,
    }
    return Page(values, (STYLE,), (SCRIPT,)) if drawn else Page(values, (), ())
