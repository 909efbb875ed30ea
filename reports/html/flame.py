"""A flame graph as shapes of SVG, the outermost frames on top.

Geometry only: the template writes the markup. `assets/tables.js` zooms by the same numbers.
"""

from __future__ import annotations

from ...records import Flame, FlameBlock
from ...units import format_seconds
from .frame import Shape, number

WIDTH, ROW = 1200, 18
MARGIN = 4
LETTER = 6.4
"""The width of a letter of names, all of which are as wide."""
SMALLEST_TEXT = 3
"""Letters that a block shows at least."""


def picture(flame: Flame) -> tuple[int, list[Shape]]:
    """Height of the picture and its shapes: a rectangle for each block, then the names."""
    height = (1 + max((block.depth for block in flame.blocks), default=0)) * ROW
    boxes, names = [], []
    for block in flame.blocks:
        x, width = block.start_s / flame.total_s * WIDTH, block.total_s / flame.total_s * WIDTH
        frame = flame.frames[block.frame]
        y = block.depth * ROW
        boxes.append(
            Shape(
                tag="rect",
                attributes={
                    "class": f"block-{frame.kind}", "x": number(x), "y": str(y),
                    "width": number(max(width - 0.5, 0.5)), "height": str(ROW - 1),
                },
                title=_said(flame, block),
            )
        )  # fmt: skip
        room = int((width - MARGIN) / LETTER)
        if room >= SMALLEST_TEXT:
            names.append(
                Shape(
                    tag="text",
                    attributes={"x": number(x + MARGIN / 2), "y": str(y + ROW - 5)},
                    text=_cut(frame.name, room),
                )
            )
    return height, boxes + names


def _said(flame: Flame, block: FlameBlock) -> str:
    share = 100 * block.total_s / flame.total_s
    name = flame.frames[block.frame].name
    if not flame.num_steps:
        return f"{name}: {format_seconds(block.total_s)}, {share:.1f}%"
    return f"{name}: {format_seconds(block.total_s / flame.num_steps)} a step, {share:.1f}%"


def _cut(name: str, room: int) -> str:
    """The end of a path says more than its start; of other names it is the start."""
    if len(name) <= room:
        return name
    if "/" in name and ".py(" in name:
        return _cut(name.rpartition("/")[2], room)
    return name[: room - 1] + "…"
