"""Where the names on a chart stand: across no line, on no other name, off the curves if they can.

`assets/chart_marks.js` places the names of live charts by the same rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

CHARACTER = 6.7
"""About the width of a character of the labels."""
ABOVE, BELOW = 10.0, 3.0
"""What a line of text takes above and below its base line."""
OUTSIDE, CROSSED, COVERED, FARTHER = 1000.0, 100.0, 1.0, 0.05
"""Penalties of a label's place: for a part outside the picture, for each line or name that it
crosses, for each piece of a curve that it covers, for each place that was preferred to it."""
PIECE = 6.0
"""Pixels of a curve that count as one."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle, in pixels from the top left."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Whether both have a point in common."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a text may stand: a point of its base line, and which end of the text is there."""

    x: float
    y: float
    anchor: str

    def box(self, text: str) -> Box:
        """The box of the text at this place."""
        width = len(text) * CHARACTER
        left = self.x - {"start": 0.0, "middle": width / 2, "end": width}[self.anchor]
        return Box(left, self.y - ABOVE, left + width, self.y + BELOW)


class Labels:
    """Finds places for names, one after the other.

    Args:
        room: what no name leaves.
        lines: across which none stands.
        curves: pieces that are better left free.
    """

    def __init__(self, room: Box, lines: Iterable[Box], curves: Iterable[Box]) -> None:
        self._room = room
        self._taken = list(lines)
        self._curves = list(curves)

    def put(self, text: str, places: Sequence[Place]) -> Place:
        """The best of the places; those that are named first are preferred."""
        best = min(enumerate(places), key=lambda pair: self._badness(pair[1].box(text), pair[0]))[1]
        self._taken.append(best.box(text))
        return best

    def _badness(self, box: Box, order: int) -> float:
        room = self._room
        outside = box.left < room.left or box.right > room.right or box.top < room.top
        crossed = sum(box.meets(other) for other in self._taken)
        covered = sum(box.meets(other) for other in self._curves)
        return (
            OUTSIDE * (outside or box.bottom > room.bottom)
            + CROSSED * crossed
            + COVERED * covered
            + FARTHER * order
        )


def pieces(points: Sequence[tuple[float, float]]) -> list[Box]:
    """A line through points as boxes."""
    boxes = []
    for (x, y), (to_x, to_y) in pairwise(points):
        steps = max(1, round(max(abs(to_x - x), abs(to_y - y)) / PIECE))
        for step in range(steps + 1):
            at_x, at_y = x + (to_x - x) * step / steps, y + (to_y - y) * step / steps
            boxes.append(Box(at_x - 1, at_y - 1, at_x + 1, at_y + 1))
    return boxes
