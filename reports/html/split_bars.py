"""A split plan as bars: how long each device is at work in a step, beside other divisions."""

from __future__ import annotations

from ...units import format_seconds
from ..report import SplitBar, SplitGroup, SplitSection
from .frame import Shape
from .labels import CHARACTER

WIDTH = 900
LONGEST_NAME = 24
"""Characters of a device's name that are drawn; the table has all."""
TITLE, ROW, BAR, GAP = 24, 30, 24, 12


def bars(section: SplitSection) -> tuple[int, list[Shape]]:
    """Height of the picture and its shapes; all groups on one scale of time."""
    names = [bar.device for group in section.groups for bar in group.bars]
    left = 12 + CHARACTER * min(LONGEST_NAME, max(map(len, names), default=0))
    longest = max((group.step_s for group in section.groups), default=0.0)
    scale = (WIDTH - left - 4) / longest if longest > 0 else 0.0
    shapes: list[Shape] = []
    y = 0
    for group in section.groups:
        text = f"{group.title}: {format_seconds(group.step_s)} a step (estimate)"
        shapes.append(_text(0, y + 16, text, "head"))
        y += TITLE
        for bar in group.bars:
            shapes += _row(bar, group, y, left, scale)
            y += ROW
        y += GAP
    return y, shapes


def _row(bar: SplitBar, group: SplitGroup, y: int, left: float, scale: float) -> list[Shape]:
    works, waits = scale * bar.step_s, scale * (group.step_s - bar.step_s)
    said = f"{bar.batch_size}: {format_seconds(bar.step_s)}"
    name = bar.device if len(bar.device) <= LONGEST_NAME else bar.device[: LONGEST_NAME - 3] + "..."
    shapes = [_text(0, y + 16, name, "dim")]
    shapes.append(
        _rect("full", left, y, works, f"{bar.device}: {bar.batch_size} samples, predicted "
              f"{format_seconds(bar.step_s)}")
    )  # fmt: skip
    if waits >= 1:
        rest = format_seconds(group.step_s - bar.step_s)
        shapes.append(_rect("empty", left + works, y, waits, f"{bar.device} waits for {rest}"))
    need = len(said) * CHARACTER + 8
    if works >= need:
        shapes.append(_text(left + works / 2, y + 16, said, "block-text middle"))
    elif waits >= need:
        shapes.append(_text(left + works + 5, y + 16, said, "dim"))
    return shapes


def _rect(css: str, x: float, y: float, width: float, title: str) -> Shape:
    attributes = {
        "class": f"block {css}", "x": f"{x:.1f}", "y": f"{y:.0f}", "width": f"{width:.1f}",
        "height": str(BAR),
    }  # fmt: skip
    return Shape(tag="rect", attributes=attributes, title=title)


def _text(x: float, y: float, text: str, css: str) -> Shape:
    attributes = {"class": css, "x": f"{x:.1f}", "y": f"{y:.0f}"}
    return Shape(tag="text", attributes=attributes, text=text)
