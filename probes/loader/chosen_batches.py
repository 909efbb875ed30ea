"""Batches of chosen lengths at the beginning of a trial: the longest of an epoch, or others.

The peak of memory is set by the longest batch, which a short window seldom sees. Of samples drawn
one by one the longest are put together, which is the worst that chance can do. A batch sampler of
the script's own makes its batches itself: of one pass over them the worst is taken. Of a stream
those of its first samples go first whose lengths have the rank asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset

from ...records import CHOSEN_STEPS, ChosenBatch, LengthCensus, LengthChoice
from .cycled_dataset import CycledDataset, own_of
from .sample_lengths import SampleLengths, measure

LENGTH_PARTS = 50
"""One part in so many of the samples, in order of length, counts as being of one length."""
MOST_BATCHES = 20_000
"""Batches of one pass of a batch sampler that are looked at, at most."""
MOST_KINDS = 400
"""Lengths that a census keeps apart; of more, neighbours below the longest are joined upwards."""
KEPT_APART = 100
MOST_KEPT = 256
"""Samples of a stream that are kept; they are repeated for larger batches."""


class ChosenBatches:
    """Batches of chosen samples with which a trial begins.

    Attributes:
        used: the batches that it began with; `None` where it began as the script would.
    """

    def __init__(self) -> None:
        self._length: LengthChoice = ""
        self._left = 0
        self._worst: dict[int, list[Any]] = {}
        self._order: list[Any] | None = None
        self._longest: list[Any] | None = None
        self._of_rank: dict[tuple[LengthChoice, int], list[Any]] = {}
        self.used: ChosenBatch | None = None

    def begin(self, length: LengthChoice, batches_a_step: int = 1) -> None:
        """A trial begins, with samples of such lengths; as they come where that is empty."""
        num = CHOSEN_STEPS * batches_a_step if length else 0
        self._length, self._left, self.used = length, num, None

    @property
    def wanted(self) -> bool:
        """Whether the next batch is to be a chosen one."""
        return self._left > 0

    def batch(
        self,
        size: int,
        lengths: SampleLengths,
        indices: Iterable[Any],
        own: Iterable[Any] | None,
        *,
        is_budget: bool = False,
    ) -> Any:
        """The next batch of a trial that begins with chosen ones; empty if there is none.

        Args:
            size: samples, or a budget.
            indices: one pass over the samples of the script's own sampler.
            own: one pass over batches of this size, where the script's own sampler makes them.
        """
        self._left -= 1
        batch: Any
        if own is not None and self._length == "longest":
            if size not in self._worst:
                self._worst[size] = worst_of(own, lengths)
            batch = self._worst[size]
        else:
            batch = self._around(size, lengths, indices, is_budget=is_budget)
        if isinstance(batch, list):
            self._note(lengths.of(batch))
        return batch

    def stream(self, loader: Any, size: int, lengths: SampleLengths) -> CycledDataset:
        """The stream of a loader from its beginning, behind samples chosen by length if wanted."""
        dataset = loader.dataset
        endless = dataset if isinstance(dataset, CycledDataset) else CycledDataset(dataset)
        first: list[Any] = []
        times = self._left
        if self.wanted:
            some = self._some_of(own_of(endless), size, lengths)
            first = [some[at % len(some)] for at in range(size if some else 0)]
            self._left = 0
            self._note([length for sample in first if (length := measure(sample)) is not None])
        return endless.starting_with(first, times)

    def _some_of(self, dataset: Any, size: int, lengths: SampleLengths) -> list[Any]:
        """Samples of a stream; others than the longest take a second pass, once ranks are known."""
        if self._longest is None:
            self._longest = lengths.longest_of(dataset, MOST_KEPT)
        if self._length == "longest" or not self._longest:
            return self._longest
        wanted = min(size, MOST_KEPT)
        if (self._length, wanted) not in self._of_rank:
            band = band_of(sorted(lengths.by_index.values()), self._length, wanted)
            self._of_rank[self._length, wanted] = lengths.between(dataset, band, wanted)
        return self._of_rank[self._length, wanted]

    def _note(self, known: Sequence[int] | None) -> None:
        """Keeps the lengths of a chosen batch, as far as there are any."""
        if known:
            self.used = ChosenBatch(
                length=self._length, num_samples=len(known), longest=max(known), total=sum(known)
            )

    def _around(
        self, size: int, lengths: SampleLengths, indices: Iterable[Any], *, is_budget: bool
    ) -> list[Any]:
        """Samples of like length at one place in the order of lengths, repeated if too few."""
        if self._order is None:
            drawn = list(islice(indices, MOST_BATCHES))
            lengths.load(drawn)
            known = [index for index in dict.fromkeys(drawn) if index in lengths.by_index]
            self._order = sorted(known, key=lengths.by_index.__getitem__, reverse=True)
        order = self._order
        if not order:
            return []
        width = size
        if self._length != "longest":
            width = min(size, -(-len(order) // LENGTH_PARTS))
        place = {"longest": 0, "median": (len(order) - width) // 2}.get(self._length, -width)
        some = order[place:][:width]
        if is_budget:
            size = max(1, size // max(1, *(lengths.by_index[index] for index in some)))
        return [some[at % len(some)] for at in range(size)]


def band_of(ordered: Sequence[int], length: LengthChoice, size: int) -> tuple[int, int]:
    """The least and the largest of the lengths at one place in their order.

    Args:
        ordered: all that were seen, ascending; at least one.
        size: samples of a batch; of many only a part of all that counts as of one length.
    """
    num = len(ordered)
    width = min(size, -(-num // LENGTH_PARTS))
    place = {"shortest": 0, "median": (num - width) // 2}.get(length, num - width)
    return ordered[place], ordered[place + width - 1]


def worst_of(batches: Iterable[Any], lengths: SampleLengths) -> Any:
    """The batch with the most places for tokens, of equal ones the longest.

    Of batches whose lengths are unknown, the one with the most samples.
    """
    worst: Any = []
    most = (-1, -1)
    for batch in islice(batches, MOST_BATCHES):
        known = lengths.of(batch) if isinstance(batch, (list, tuple)) else None
        num = len(batch) if hasattr(batch, "__len__") else 1
        size = (num, 0) if not known else (num * max(known), max(known))
        if size > most:
            most, worst = size, list(batch) if isinstance(batch, tuple) else batch
    return worst


def census_of(lengths: SampleLengths, num_samples: int | None) -> LengthCensus | None:
    """How many samples there are of each length; `None` where none is known.

    Args:
        num_samples: of an epoch, `None` if unknown.
    """
    counts: dict[int, int] = {}
    for length in lengths.by_index.values():
        counts[length] = counts.get(length, 0) + 1
    if not counts:
        return None
    kinds = _joined(sorted(counts.items()))
    return LengthCensus(
        lengths=tuple(length for length, _ in kinds),
        counts=tuple(count for _, count in kinds),
        complete=lengths.declared or len(lengths.by_index) == num_samples,
        declared=lengths.declared,
    )


def _joined(kinds: Sequence[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """The longest apart; of the others some neighbours together, as long as the longer one."""
    few, longest = kinds[:-KEPT_APART], kinds[-KEPT_APART:]
    stride = -(-len(few) // (MOST_KINDS - KEPT_APART)) or 1
    groups = (few[at : at + stride] for at in range(0, len(few), stride))
    return [*((group[-1][0], sum(count for _, count in group)) for group in groups), *longest]


def why_unknown(loader: Any, lengths: SampleLengths) -> str:
    """Why samples of a chosen length cannot be put together; empty if they can.

    One sample is looked at: its length may be unknown until the collate function ran.
    """
    if loader is None:
        return lengths.why
    if isinstance(loader.dataset, IterableDataset):
        if not lengths.by_index:
            lengths.longest_of(loader.dataset, 1, looked_at=1)
    elif loader.batch_sampler is not None:
        lengths.load(islice(loader.sampler, 1))
    return lengths.why
