"""Sizes at which a kernel ends that still have memory: foretold from shapes of fake steps. Pure.

Between the sizes that were looked at, and beyond them, each axis of a tensor is a line in the batch
size. Limits are those of `measured/kernel_limits.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from ....advisor.measured.kernel_limits import MOST_BLOCKS, MOST_ELEMENTS, UNSIGNED_ELEMENTS
from ....records import FakeTrial, LargeTensor
from ..records import Forecast, SizeLimit

MOST_SIZE = 1 << 40


class Axis(NamedTuple):
    """A line in the batch size: `fixed + each x size`."""

    fixed: int
    each: int

    def at(self, size: int) -> int:
        """Its length."""
        return self.fixed + self.each * size

    def __str__(self) -> str:
        if not self.each:
            return str(self.fixed)
        text = "B" if self.each == 1 else f"{self.each}B"
        return text if not self.fixed else f"({text} + {self.fixed})"


def size_limits(forecasts: Sequence[Forecast]) -> tuple[SizeLimit, ...]:
    """Limits that begin at sizes for which there is memory on one of the GPUs, the first first.

    Args:
        forecasts: the script as it is written first.
    """
    reach = max((gpu.high for each in forecasts for gpu in each.gpus), default=0)
    limits = []
    for use, tensor in _largest(forecasts[0].trials[-1]).items():
        axes = _axes(forecasts[0].trials, tensor)
        limit = _limit(tensor, axes)
        if limit is not None and limit.begins <= reach:
            limits.append((limit.begins, use, limit))
    limits.sort()
    known = [limit for _, _, limit in limits]
    # A tensor that an operation with a name works on is not said again.
    named = {limit.shape for limit in known if limit.use != "other"}
    return tuple(limit for limit in known if limit.use != "other" or limit.shape not in named)


def _largest(trial: FakeTrial) -> dict[str, LargeTensor]:
    return {tensor.use: tensor for tensor in trial.largest}


def _axes(trials: Sequence[FakeTrial], tensor: LargeTensor) -> list[Axis]:
    """Finds how each axis of a tensor grows, from the last trial and an earlier like tensor."""
    last = trials[-1]
    for trial in reversed(trials[:-1]):
        like = _largest(trial).get(tensor.use)
        if like is None or len(like.shape) != len(tensor.shape) or like.line != tensor.line:
            continue
        num = last.batch_size - trial.batch_size
        pairs = list(zip(like.shape, tensor.shape, strict=True))
        if all((more - less) % num == 0 for less, more in pairs):
            each = [(more - less) // num for less, more in pairs]
            return [
                Axis(more - rise * last.batch_size, rise)
                for rise, more in zip(each, tensor.shape, strict=True)
            ]
    return [Axis(length, 0) for length in tensor.shape]


def _limit(tensor: LargeTensor, axes: Sequence[Axis]) -> SizeLimit | None:
    if tensor.use == "attention":
        begins = _first_above(axes[:1], MOST_BLOCKS)
    else:
        begins = _first_above(axes, MOST_ELEMENTS)
    if begins is None:
        return None
    shape = " x ".join(map(str, axes))
    unreached = None
    if tensor.use != "attention":
        above = _first_above(axes, UNSIGNED_ELEMENTS)
        unreached = None if above is None else above + 1
    return SizeLimit(
        use=tensor.use, shape=shape, line=tensor.line, begins=begins, unreached=unreached
    )


def _first_above(axes: Sequence[Axis], most: int) -> int | None:
    """The smallest size at which the product of the axes is larger; `None` where it never is."""
    if not any(axis.each > 0 for axis in axes):
        return None
    low, high = 0, 1
    while prod(axis.at(high) for axis in axes) <= most:
        low, high = high, high * 2
        if high > MOST_SIZE:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        if prod(axis.at(middle) for axis in axes) > most:
            high = middle
        else:
            low = middle
    return high
