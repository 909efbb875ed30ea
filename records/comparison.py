"""Two runs of the same thing, before and after a change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from .base import Record, Spread

Change = Literal["more", "less", "cannot tell", "not known"]


class Difference(Record, frozen=True, kw_only=True):
    """One quantity in both runs.

    Attributes:
        quantity: what is compared; `real_tokens_per_s` where both runs know them.
        batch_before, batch_after: the sizes compared; the same but for the recommended ones.
        before, after: in base units; throughput with its interval, memory as a plain number.
        ratio: after over before.
        ratio_low, ratio_high: the most that the two intervals allow; `None` without intervals.
        change: `more` or `less` only where the intervals do not overlap.
    """

    quantity: Literal["samples_per_s", "real_tokens_per_s", "peak_bytes"]
    batch_before: int
    batch_after: int
    before: Spread | float | None
    after: Spread | float | None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    change: Change


class Comparison(Record, frozen=True, kw_only=True):
    """Two runs side by side.

    Attributes:
        recommended: throughput at the recommended size of each run; `None` if one has none.
        like_for_like: throughput at one size in both, where the recommended sizes differ; `None`
            where they do not, or no size was timed in both.
        sizes: throughput and memory at every size that ran in both, smallest first.
        only_before, only_after: sizes that ran in one of them.
        differs: what else is not the same: label, first run, second run.
        same_device: whether the two were measured on the same kind of device.
        same_script: whether both ran the same file; its arguments may differ.
        moved: the largest ratio between two readings of one size within either run, at least 1; a
            ratio of throughputs must go beyond it to count as a change. `None` where no size was
            read twice.
        tokens: real tokens per second at the recommended size of each run; `None` where one of them
            does not know them.
    """

    recommended: Difference | None
    like_for_like: Difference | None = None
    sizes: tuple[Difference, ...]
    only_before: tuple[int, ...] = ()
    only_after: tuple[int, ...] = ()
    differs: tuple[tuple[str, str, str], ...] = ()
    same_device: bool = True
    same_script: bool = True
    moved: float | None = None
    tokens: Difference | None = None


def shared_size(wanted: Sequence[int], timed: Sequence[Iterable[int]]) -> int | None:
    """The size at which runs are compared like for like; `None` where none was timed in all.

    It is the first wanted one that was, else the largest: nobody picks it for what it shows.

    Args:
        wanted: the recommended sizes, in the order of the runs.
        timed: the sizes that each run timed.

    >>> shared_size([64, 32], [(16, 32, 64), (16, 32)]), shared_size([64, 8], [(16, 64), (8, 16)])
    (32, 16)
    """
    shared = set.intersection(*map(set, timed)) if timed else set()
    return next((size for size in wanted if size in shared), max(shared, default=None))
