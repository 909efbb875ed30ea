"""The samples that a loader draws, laid into batches by us: as they come, or by their length."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from torch.utils.data import BatchSampler, IterableDataset

from .token_batch import BatchTokens
from .token_counts import count_tokens

NO_LOADER = "batches do not come from a DataLoader that is steered"
MAX_LAYING_S = 10.0
"""Samples are loaded and laid into batches for so long at most."""
MAX_ELEMENTS = 200_000_000
"""The batches of both orders hold so many places at most, as they wait in memory."""


class LaidBatch(NamedTuple):
    """A batch as the loader would have made it, and its tokens."""

    batch: Any
    tokens: BatchTokens


class LoaderSamples(NamedTuple):
    """What makes batches of a loader of a map-style dataset.

    Attributes:
        collate: makes a batch of samples.
        indices: what its sampler draws, one pass.
    """

    dataset: Any
    collate: Callable[[list[Any]], Any]
    indices: Iterable[Any]

    def laid(self, size: int, num_batches: int) -> tuple[list[LaidBatch], list[LaidBatch]] | str:
        """The same samples in batches as they are drawn, and in batches of like length.

        Fewer batches where they take too long to load. The order of the batches of like length is
        shuffled. Why it cannot be, where it cannot.
        """
        end_s = time.monotonic() + MAX_LAYING_S
        samples: list[Any] = []
        for index in itertools.islice(iter(self.indices), size * num_batches):
            samples.append(self._sample(index))
            if len(samples) % size == 0 and time.monotonic() > end_s:
                break
        num_batches = len(samples) // size
        samples = samples[: size * num_batches]
        drawn = self._batches(samples, size)
        if isinstance(drawn, str):
            return drawn
        lengths = [length for batch in drawn for length in batch.tokens.lengths or ()]
        if len(lengths) != len(samples):
            return "a batch does not tell the length of each of its samples"
        places = sorted(range(len(samples)), key=lengths.__getitem__)
        grouped = self._batches([samples[place] for place in places], size)
        if isinstance(grouped, str):
            return grouped
        if _real(drawn) != _real(grouped):
            return "the tokens of a sample depend on its batch"
        random.Random(0).shuffle(grouped)
        return drawn, grouped

    def _batches(self, samples: list[Any], size: int) -> list[LaidBatch] | str:
        laid: list[LaidBatch] = []
        places = 0
        for start in range(0, len(samples), size):
            batch = self.collate(samples[start : start + size])
            tokens = count_tokens(batch)
            if tokens is None or tokens.real is None or tokens.positions is None:
                return "a batch does not tell its tokens"
            places += tokens.positions
            if places > MAX_ELEMENTS:
                return "the batches would take too much memory"
            laid.append(LaidBatch(batch, tokens))
        return laid

    def _sample(self, index: Any) -> Any:
        """One sample, fetched as torch's DataLoader does it."""
        many = getattr(self.dataset, "__getitems__", None)
        return many([index])[0] if many else self.dataset[index]


def drawn_by(loader: Any, native: Any, *, can_steer: bool) -> LoaderSamples | str:
    """What the sampler of a loader draws, to be laid into batches anew; why that cannot be.

    Args:
        native: its batch sampler as the script has it.
    """
    if loader is None or native is None or not can_steer:
        return "the loader's batches are not ours to lay"
    if isinstance(loader.dataset, IterableDataset):
        return "the dataset is iterable and hands out its samples in its own order"
    if type(native) is not BatchSampler:
        return f"the loader has a batch sampler of its own ({type(native).__name__})"
    return LoaderSamples(loader.dataset, loader.collate_fn, native.sampler)


def _real(batches: list[LaidBatch]) -> int:
    return sum(batch.tokens.real or 0 for batch in batches)
