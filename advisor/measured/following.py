"""Whether what a step trains on follows the size that was asked for.

Where the batch lies along another axis, or several axes are one, lengths still grow with the size;
so do the nodes of a batch of graphs, and the number of micro-batches that a loop cuts. So it is
said that a size does not arrive only where nothing that enters the model or the loss grows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, zip_longest
from math import prod, sqrt

import msgspec

from ...records import Entered, Trial

FAR_APART = 2
"""Sizes are compared of which one is so many times the other."""


class NotFollowed(msgspec.Struct, frozen=True):
    """Two sizes at which a step trained on the same.

    Attributes:
        smaller, larger: the sizes that were asked for.
        entered: at the larger one.
    """

    smaller: int
    larger: int
    entered: Entered

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first tensor that the model was given, else of the first that the loss was
        made of."""
        return (*self.entered.inputs, *self.entered.loss)[0]


def not_followed(trials: Iterable[Trial]) -> NotFollowed | None:
    """Two sizes that were asked for in vain; `None` where sizes arrive, or nothing shows it."""
    seen: dict[int, Entered] = {}
    for trial in trials:
        went = trial.ran or trial.outcome == "wrong_size"
        if went and trial.says_of_size and trial.entered is not None:
            seen.setdefault(trial.batch_size, trial.entered)
    pairs = [pair for pair in combinations(sorted(seen), 2) if pair[1] >= FAR_APART * pair[0]]
    if not pairs or any(grows(seen[low], seen[high], high / low) for low, high in pairs):
        return None
    smaller, larger = min(seen), max(seen)
    return NotFollowed(smaller, larger, seen[larger])


def grows(before: Entered, after: Entered, ratio: float) -> bool:
    """Whether anything that enters grew at least half as far as the size, by its logarithm."""
    least = sqrt(ratio)
    return any(new >= least * old for old, new in _lengths(before, after) if old)


def shows(entered: Entered, size: int) -> bool:
    """Whether something that enters is as long as a size that was asked for."""
    return any(size in shape for shape in _shapes(entered))


def share_of(written: Entered, asked: Entered, size: int) -> int | None:
    """The size that the script has as written, by what enters there and at a size asked for.

    `None` where nothing tells: lengths that differ do so by different factors, or none is at hand.
    """
    others = [(old, new) for old, new in _axes(written, asked) if old != new and old and new]
    exact = {old for old, new in others if new == size}
    scaled = {round(size * old / new) for old, new in others if new % size == 0}
    for sizes in (exact, scaled):
        if len(sizes) == 1:
            return max(1, sizes.pop())
    return size if written == asked and shows(asked, size) else None


def _lengths(before: Entered, after: Entered) -> Iterator[tuple[int, int]]:
    yield before.num_inputs, after.num_inputs
    yield before.num_elements, after.num_elements
    for olds, news in ((before.inputs, after.inputs), (before.loss, after.loss)):
        for old, new in zip(olds, news, strict=False):
            yield prod(old), prod(new)
    yield from _axes(before, after)


def _axes(before: Entered, after: Entered) -> Iterator[tuple[int, int]]:
    for olds, news in ((before.inputs, after.inputs), (before.loss, after.loss)):
        for old, new in zip(olds, news, strict=False):
            yield from zip_longest(old, new, fillvalue=0)


def _shapes(entered: Entered) -> Sequence[tuple[int, ...]]:
    return (*entered.inputs, *entered.loss)
