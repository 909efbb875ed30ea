"""The numbers of two processes on the same batches."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot, isfinite

from .records import NumbersChecked
from .settings import Kept, Step

MOST_SKIPPED = 0.5
"""A scaler that leaves out more of the steps than this does not train."""
FIRST_SCALES = 16
"""Steps that a scaler may leave out while it finds its scale, halved each time from 2 ** 16."""
OTHER_BATCHES = "no batch was the same in both processes"


def checked(usual: Kept, remedy: Kept, *, begins_late: bool, drops: bool) -> NumbersChecked:
    """Losses and gradients of batches that both trained on, in the same order.

    Args:
        begins_late: the remedy was in force only once the loop was known.
        drops: the script drops activations at random.
    """
    pairs = [
        (one, other)
        for one, other in _pairs(usual.steps, remedy.steps)
        if (one.begun and other.begun) or not begins_late
    ]
    losses = [
        (one.loss, other.loss)
        for one, other in pairs
        if one.loss is not None and other.loss is not None and isfinite(one.loss)
    ]
    finite = all(isfinite(other) for _, other in losses) and _stays_finite(usual, remedy)
    note = ""
    if drops and pairs:
        note = "activations are dropped at random, which has a part in it"
    if _skips(remedy):
        finite = False
        note = f"the scaler left out {remedy.num_skipped} of {remedy.num_scaled} steps"
    elif remedy.num_skipped:
        note = f"the scaler left out {remedy.num_skipped} steps while it found its scale"
    return NumbersChecked(
        num_steps=len(pairs),
        loss=max((_apart(*pair) for pair in losses), default=None) if finite else None,
        gradients=max(
            (
                far
                for one, other in pairs
                if (far := gradients_apart(one.gradients, other.gradients)) is not None
            ),
            default=None,
        ),
        finite=finite,
        note=note,
        reason="" if pairs else OTHER_BATCHES,
    )


def _pairs(usual: Sequence[Step], remedy: Sequence[Step]) -> list[tuple[Step, Step]]:
    """Steps of the same place, as long as both got the same batches; anew where a part begins."""
    pairs: list[tuple[Step, Step]] = []
    for begun in (False, True):
        mine = [step for step in usual if step.begun == begun]
        its = [step for step in remedy if step.begun == begun]
        for one, other in zip(mine, its, strict=False):
            if one.digest != other.digest:
                break
            pairs.append((one, other))
    return pairs


def _stays_finite(usual: Kept, remedy: Kept) -> bool:
    """Whether the last loss is finite, unless it is not without the remedy either."""
    last, own = remedy.last_loss, usual.last_loss
    return last is None or isfinite(last) or (own is not None and not isfinite(own))


def _skips(kept: Kept) -> bool:
    usual = kept.num_skipped - FIRST_SCALES
    return usual > 0 and usual > MOST_SKIPPED * max(1, kept.num_scaled - FIRST_SCALES)


def _apart(one: float, other: float) -> float:
    return abs(other - one) / max(abs(one), 1e-12)


def gradients_apart(one: bytes, other: bytes) -> float | None:
    """The length of the difference of two gradients over that of the first, by their elements.

    `None` where one is missing, or not finite: a scaler leaves such a step out.
    """
    mine, its = (memoryview(each).cast("f") for each in (one, other))
    if not mine or len(mine) != len(its):
        return None
    length = hypot(*mine)
    far = hypot(*(b - a for a, b in zip(mine, its, strict=True)))
    return far / length if length > 0 and isfinite(far) else None
