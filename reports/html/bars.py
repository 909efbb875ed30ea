"""Rows of bars: the batches of an epoch on each rank, the steps of each device in a split plan."""

from __future__ import annotations

from collections.abc import Sequence

from ...units import format_seconds
from ..report import Block, RankBlocks, SplitBar, SplitGroup, SplitSection, TailSection
from .frame import Shape, shape, text_at
from .labels import CHARACTER

WIDTH = 900
LEFT = 62
BLOCK_ROW, BLOCK_GAP, BLOCK = 40, 12, 30
MIDDLE = 150
"""Width of the block that stands for many."""
SMALLEST = 3
LONGEST_NAME = 24
"""Characters of a device's name that are drawn; the table has all."""
SPLIT_TITLE, SPLIT_ROW, SPLIT_BAR, SPLIT_GAP = 24, 30, 24, 12


def epoch_blocks(tail: TailSection) -> tuple[int, list[Shape]]:
    """Height of the picture and its shapes; blocks are as wide as they hold samples."""
    unit = _unit(tail.ranks, tail.batch_size)
    shapes: list[Shape] = []
    for number, rank in enumerate(tail.ranks):
        shapes += _rank(rank, number * BLOCK_ROW + BLOCK_GAP // 2, unit, tail.batch_size)
    return len(tail.ranks) * BLOCK_ROW + BLOCK_GAP, shapes


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


def _rank(rank: RankBlocks, y: int, unit: float, batch_size: int) -> list[Shape]:
    shapes, x = [text_at(0, y + 19, f"rank {rank.rank}", "dim", "start")], float(LEFT)
    for block in rank.blocks:
        width = MIDDLE if block.count > 1 else max(SMALLEST, unit * (block.samples or batch_size))
        shapes.append(_bar(block.kind, x, y, width, height=BLOCK, title=_said(block)))
        short, css = _short(block), "block-text" if block.kind in ("full", "short") else "dim"
        if len(short) * CHARACTER + 4 < width:
            shapes.append(text_at(x + width / 2, y + 19, short, css, "middle"))
        elif block is rank.blocks[-1]:
            shapes.append(text_at(x + width + 4, y + 19, short, "dim", "start"))
        x += width
    return shapes


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


def split_bars(section: SplitSection) -> tuple[int, list[Shape]]:
    """How long each device is at work in a step, beside other divisions.

    Height of the picture and its shapes; all groups on one scale of time.
    """
    names = [bar.device for group in section.groups for bar in group.bars]
    left = 12 + CHARACTER * min(LONGEST_NAME, max(map(len, names), default=0))
    longest = max((group.step_s for group in section.groups), default=0.0)
    scale = (WIDTH - left - 4) / longest if longest > 0 else 0.0
    shapes: list[Shape] = []
    y = 0
    for group in section.groups:
        text = f"{group.title}: {format_seconds(group.step_s)} a step (estimate)"
        shapes.append(text_at(0, y + 16, text, "head", "start"))
        y += SPLIT_TITLE
        for bar in group.bars:
            shapes += _device(bar, group, y, left, scale)
            y += SPLIT_ROW
        y += SPLIT_GAP
    return y, shapes


def _device(bar: SplitBar, group: SplitGroup, y: int, left: float, scale: float) -> list[Shape]:
    works, waits = scale * bar.step_s, scale * (group.step_s - bar.step_s)
    step = format_seconds(bar.step_s)
    said = f"{bar.batch_size}: {step}"
    name = bar.device if len(bar.device) <= LONGEST_NAME else bar.device[: LONGEST_NAME - 3] + "..."
    shapes = [text_at(0, y + 16, name, "dim", "start")]
    told = f"{bar.device}: {bar.batch_size} samples, predicted {step}"
    shapes.append(_bar("full", left, y, works, height=SPLIT_BAR, title=told))
    if waits >= 1:
        told = f"{bar.device} waits for {format_seconds(group.step_s - bar.step_s)}"
        shapes.append(_bar("empty", left + works, y, waits, height=SPLIT_BAR, title=told))
    need = len(said) * CHARACTER + 8
    if works >= need:
        shapes.append(text_at(left + works / 2, y + 16, said, "block-text", "middle"))
    elif waits >= need:
        shapes.append(text_at(left + works + 5, y + 16, said, "dim", "start"))
    return shapes


def _bar(kind: str, x: float, y: float, width: float, *, height: float, title: str) -> Shape:
    return shape("rect", f"block {kind}", title=title, x=x, y=y, width=width, height=height)
