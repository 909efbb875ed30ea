"""What a DataLoader says of itself: its batch size, its samples, its last batch, its sampler."""

from __future__ import annotations

from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from .batch_sampler import SteeredBatchSampler
from .budgets import Budget
from .sample_lengths import SampleLengths
from .sharing import length_of


def attribute_size(batch_sampler: Any) -> int | None:
    """The size that a batch sampler names; `None` where it names none."""
    size = getattr(batch_sampler, "batch_size", None)
    return size if isinstance(size, int) else None


def budget_facts(budget: Budget | None, lengths: SampleLengths | None) -> dict[str, Any]:
    """Fields of the loader's record where its sizes are budgets."""
    if budget is None or lengths is None:
        return {}
    known = lengths.by_index.values() if lengths.declared else ()
    return {
        "axis": budget.axis,
        "parameter": budget.parameter,
        "num_units": sum(known) or None,
        "longest": max(known, default=None),
    }


def samples_of(loader: DataLoader[Any]) -> int | None:
    """Samples of an epoch on this rank; `None` where nothing tells."""
    if isinstance(loader.dataset, IterableDataset):
        return length_of(loader.dataset)
    sampler = getattr(loader.batch_sampler, "sampler", None)
    while isinstance(sampler, SteeredBatchSampler) or type(sampler) is BatchSampler:
        # One around the loader's own, that repeats it for ever: its length counts batches.
        sampler = sampler.sampler
    # A batch sampler of the script's own may have no sampler: the dataset is what it draws.
    return length_of(loader.dataset if sampler is None else sampler)


def drops_last(loader: DataLoader[Any], seen: int | None = None) -> bool:
    """Whether the loader leaves a short last batch out.

    Args:
        seen: samples of a batch, where its batch sampler does not name them.
    """
    named = loader.drop_last or getattr(loader.batch_sampler, "drop_last", None)
    return _is_short_of_one(loader, seen) if named is None else bool(named)


def _is_short_of_one(loader: DataLoader[Any], seen: int | None) -> bool:
    """Whether a batch sampler of the script's own has one batch fewer than hold all samples."""
    size, samples = attribute_size(loader.batch_sampler) or seen, samples_of(loader)
    if not size or not samples or not samples % size:
        return False
    return length_of(loader.batch_sampler) == samples // size


def sampler_name(loader: DataLoader[Any]) -> str:
    """The class that chooses the samples: the batch sampler where it is one of the script's."""
    batch_sampler = getattr(loader.batch_sampler, "_native", loader.batch_sampler)
    if batch_sampler is not None and type(batch_sampler) is not BatchSampler:
        return type(batch_sampler).__name__
    # A loader that was given a batch sampler has a sampler of its own that nobody asks.
    return type(getattr(batch_sampler, "sampler", loader.sampler)).__name__
