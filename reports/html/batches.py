"""The batches of an epoch as blocks, a row for each rank."""

from __future__ import annotations

from collections.abc import Sequence

from ..report import Block, RankBlocks, TailSection
from .frame import Shape
from .labels import CHARACTER

WIDTH = 900
LEFT = 62
ROW, GAP, BAR = 40, 12, 30
MIDDLE = 150
"""Width of the block that stands for many."""
SMALLEST = 3


def picture(tail: TailSection) -> tuple[int, list[Shape]]:
    """Height of the picture and its shapes; blocks are as wide as they hold samples."""
    unit = _unit(tail.ranks, tail.batch_size)
    shapes: list[Shape] = []
    for number, rank in enumerate(tail.ranks):
        shapes += _row(rank, number * ROW + GAP // 2, unit, tail.batch_size)
    return len(tail.ranks) * ROW + GAP, shapes


def _unit(ranks: Sequence[RankBlocks], batch_size: int) -> float:
    """Pixels a sample, so that the longest row fits."""
    widest = 1
    middles = 0
    for rank in ranks:
        drawn = sum(1 for block in rank.blocks if block.count == 1)
        widest = max(widest, drawn)
        middles = max(middles, sum(1 for block in rank.blocks if block.count > 1))
    room = WIDTH - LEFT - 4 - middles * MIDDLE
    return min(120.0, room / widest) / max(1, batch_size)


def _row(rank: RankBlocks, y: int, unit: float, batch_size: int) -> list[Shape]:
    label = Shape(
        tag="text",
        attributes={"class": "dim", "x": "0", "y": f"{y + 19}"},
        text=f"rank {rank.rank}",
    )
    shapes, x = [label], float(LEFT)
    for block in rank.blocks:
        width = MIDDLE if block.count > 1 else max(SMALLEST, unit * (block.samples or batch_size))
        shapes.append(
            Shape(
                tag="rect",
                attributes={
                    "class": f"block {block.kind}", "x": f"{x:.1f}", "y": str(y),
                    "width": f"{width:.1f}", "height": str(BAR),
                },
                title=_said(block),
            )
        )  # fmt: skip
        short, text = _short(block), "block-text" if block.kind in ("full", "short") else "dim"
        if len(short) * CHARACTER + 4 < width:
            shapes.append(_label(x + width / 2, y, short, text, "middle"))
        elif block is rank.blocks[-1]:
            shapes.append(_label(x + width + 4, y, short, "dim", "start"))
        x += width
    return shapes


def _label(x: float, y: int, text: str, css: str, anchor: str) -> Shape:
    attributes = {"class": f"{css} {anchor}", "x": f"{x:.1f}", "y": f"{y + 19}"}
    return Shape(tag="text", attributes=attributes, text=text)


def _short(block: Block) -> str:
    if block.kind == "dropped":
        return f"{block.samples} dropped"
    if block.kind == "empty":
        return "no batch"
    return str(block.samples) if block.count == 1 else f"{block.count} x {block.samples}"


def _said(block: Block) -> str:
    if block.kind == "empty":
        return "this rank has no batch in this step"
    if block.count > 1:
        return f"{block.count} batches of {block.samples} samples"
    words = {"full": "a full batch", "short": "the last batch", "dropped": "left out of the epoch"}
    return f"{words[block.kind]}: {block.samples} samples"
