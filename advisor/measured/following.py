"""Whether what a step trains on follows the size that was asked for.

Where the batch lies along another axis, or several axes are one, lengths still grow with the size;
so do the nodes of a batch of graphs, and the number of micro-batches that a loop cuts. So it is
said that a size does not arrive only where nothing that enters the model or the loss grows.

One more case is told: what enters the model may grow by itself, as the neighbours of a graph that
is read event by event do. Where a batch holds no more, however many samples were drawn for it, what
the loss is made of decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, zip_longest
from math import prod, sqrt

import msgspec

from ...records import Entered, InputSize, Trial

FAR_APART = 2
"""Sizes are compared of which one is so many times the other."""
NEAREST = 3
"""Tensors nearest to a loss have a row for each sample; what lies behind may grow by itself."""


class NotFollowed(msgspec.Struct, frozen=True):
    """Two sizes at which a step trained on the same.

    Attributes:
        smaller, larger: the sizes that were asked for.
        before, entered: at the smaller one, at the larger one.
    """

    smaller: int
    larger: int
    before: Entered
    entered: Entered

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first tensor that the model was given, else of the first that the loss was
        made of; the first that is the same at both sizes, where there is one."""
        return _same(self.before, self.entered) or _shapes(self.entered)[0]

    @property
    def what(self) -> str:
        """Which tensor that is."""
        first = self.shape == _shapes(self.entered)[0]
        into = "the model" if self.shape in self.entered.inputs else "the loss"
        return f"{'the first' if first else 'a'} tensor that entered {into}"


def not_followed(trials: Iterable[Trial]) -> NotFollowed | None:
    """Two sizes that were asked for in vain; `None` where sizes arrive, or nothing shows it."""
    seen: dict[int, tuple[Entered, InputSize | None]] = {}
    for trial in trials:
        went = trial.ran or trial.outcome == "wrong_size"
        if went and trial.says_of_size and trial.entered is not None:
            # A batch whose axes show its size needs no other witness.
            batches = trial.inputs if trial.size_proof == "indices" else None
            seen.setdefault(trial.batch_size, (trial.entered, batches))
    pairs = [pair for pair in combinations(sorted(seen), 2) if pair[1] >= FAR_APART * pair[0]]
    if not pairs or any(_follows(*seen[low], *seen[high], high / low) for low, high in pairs):
        return None
    smaller, larger = min(seen), max(seen)
    return NotFollowed(smaller, larger, seen[smaller][0], seen[larger][0])


def _follows(
    before: Entered,
    small: InputSize | None,
    after: Entered,
    large: InputSize | None,
    ratio: float,
) -> bool:
    """Whether a step trained on more at a size that is so many times the other."""
    if not grows(before, after, ratio):
        return False
    if small is None or large is None or not (before.loss and after.loss):
        return True
    # They are kept by sample.
    holds_more = large.largest * ratio >= sqrt(ratio) * small.smallest
    return holds_more or grows(_loss_of(before), _loss_of(after), ratio)


def _loss_of(entered: Entered) -> Entered:
    return Entered(loss=entered.loss[:NEAREST])


def _same(before: Entered, after: Entered) -> tuple[int, ...] | None:
    """The first shape that is the same in both."""
    both = ((before.inputs, after.inputs), (before.loss, after.loss))
    pairs = (pair for olds, news in both for pair in zip(olds, news, strict=False))
    return next((new for old, new in pairs if old == new), None)


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
