"""Samples grouped by length: what that saves of the padding, and a sampler that does it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, Sampler, SequentialSampler

from ....probes.loader.cycled_dataset import own_of
from ....probes.loader.sample_lengths import fetch, length_of
from ..settings import POOL_BATCHES

LENGTHS_SEEN, LENGTHS_S = 1000, 2.0
"""Samples whose lengths say what there is to save, and seconds for it at most."""
GROUPED, GROUPED_S = 20_000, 5.0
"""Samples that are grouped, drawn at random out of all, and seconds for their lengths at most."""
DRAWN_FROM = 41_117


def lengths_of(dataset: Any, most: int, limit_s: float) -> dict[int, int]:
    """Lengths of samples by index, drawn at random; none where one has no length."""
    indices = random.Random(DRAWN_FROM).sample(range(len(dataset)), min(most, len(dataset)))
    end_s, found = time.monotonic() + limit_s, dict[int, int]()
    for index in indices:
        length = length_of(fetch(dataset, index))
        if length is None:
            return {}
        found[index] = length
        if time.monotonic() > end_s:
            break
    return found


def saved_by_order(loader: DataLoader[Any] | None, batch_size: int) -> tuple[float | None, str]:
    """Padded length squared of batches as they are, over that of batches of like length.

    Nothing in a step grows faster with the length than attention, with its square.

    Returns:
        The factor, and an empty text; or None, and why there is nothing to group.
    """
    if loader is None:
        return None, "the script let its loader go"
    dataset: Any = own_of(loader.dataset)
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        return None, "its samples come as a stream"
    sampler: Any = getattr(loader.batch_sampler, "sampler", loader.sampler)
    if type(sampler) not in (RandomSampler, SequentialSampler):
        return None, "it has a sampler of its own"
    try:
        with torch.random.fork_rng(devices=[]):
            known = lengths_of(dataset, LENGTHS_SEEN, LENGTHS_S)
            if len(set(known.values())) < 2:
                return (
                    None,
                    "its samples have one length" if known else "its samples have no length",
                )
            ends = [min(known, key=known.__getitem__), max(known, key=known.__getitem__)]
            if not pads(loader, dataset, ends):
                return None, "its batches are not padded to their longest sample"
    except Exception as error:  # noqa: BLE001  whatever the script's data set raises
        return None, f"its samples cannot be read apart ({type(error).__name__})"
    usual = list(known.values())
    pool = POOL_BATCHES * batch_size
    grouped = [each for at in range(0, len(usual), pool) for each in sorted(usual[at : at + pool])]
    return _padded(usual, batch_size) / _padded(grouped, batch_size), ""


def _padded(lengths: Sequence[int], batch_size: int) -> float:
    return fmean(
        max(lengths[at : at + batch_size]) ** 2 for at in range(0, len(lengths), batch_size)
    )


def pads(loader: DataLoader[Any], dataset: Any, ends: Sequence[int]) -> bool:
    """Whether a short sample is as long as a long one where they meet."""
    short, long = (fetch(dataset, index) for index in ends)
    collate = loader.collate_fn
    apart, met = collate([short, short]), collate([short, long])
    return _widest(met) > _widest(apart)


def _widest(batch: Any) -> int:
    if isinstance(batch, torch.Tensor):
        return int(batch.shape[1]) if batch.dim() > 1 else 0
    if hasattr(batch, "values"):
        batch = batch.values()
    elif not isinstance(batch, (list, tuple)):
        return 0
    return max((_widest(each) for each in batch), default=0)


class Grouped(Sampler[int]):
    """Indices at random, those of a batch of like length.

    Args:
        dataset: whose samples are drawn; of a large one some, at random.
        batch_size: of the batches that are cut of it.

    Raises:
        ValueError: its samples have no length.
    """

    def __init__(self, dataset: Any, batch_size: int) -> None:
        self._lengths = lengths_of(dataset, GROUPED, GROUPED_S)
        self._num, self._batch_size = len(dataset), batch_size
        self._random = random.Random(DRAWN_FROM)
        if not self._lengths:
            msg = "its samples have no length to be grouped by"
            raise ValueError(msg)

    def __len__(self) -> int:
        return self._num

    def __iter__(self) -> Iterator[int]:
        """As many as there are samples, over the known ones as often as that takes."""
        left = self._num
        while left > 0:
            order = list(self._lengths)
            self._random.shuffle(order)
            pool, size = POOL_BATCHES * self._batch_size, self._batch_size
            pools = [
                sorted(order[at : at + pool], key=self._lengths.__getitem__)
                for at in range(0, len(order), pool)
            ]
            batches = [each[at : at + size] for each in pools for at in range(0, len(each), size)]
            self._random.shuffle(batches)
            batches.sort(key=lambda batch: len(batch) < size)  # a short one last
            drawn = [index for batch in batches for index in batch][:left]
            left -= len(drawn)
            yield from drawn
