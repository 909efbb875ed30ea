"""Facts that a DataLoader tells: its batch size, its samples, its last batch, its sampler."""

from __future__ import annotations

import time
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from .batch_sampler import SteeredBatchSampler
from .budgets import Budget
from .sample_lengths import SampleLengths
from .sharing import length_of, sharing_of


def cut_by(loader: DataLoader[Any]) -> Any:
    """The batch sampler of a loader: also one of torch's that stands in the sampler's place, of a
    data set that makes a batch of a list of indices (`batch_size=None`)."""
    sampler = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    of_torch = type(getattr(sampler, "_native", sampler)) is BatchSampler
    return sampler if of_torch else loader.batch_sampler


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


def facts_of(loader: DataLoader[Any] | None, seen: int | None) -> dict[str, Any]:
    """Fields of the loader's record that it tells itself.

    Args:
        loader: `None` where it is gone.
        seen: samples of a batch, where its batch sampler does not name them.
    """
    if loader is None:
        return {"num_samples": None, "drop_last": False, "num_workers": 0, "sampler": "?"}
    return {
        "num_samples": samples_of(loader),
        "drop_last": drops_last(loader, seen),
        "num_workers": loader.num_workers,
        "persistent_workers": bool(loader.persistent_workers),
        "sampler": sampler_name(loader),
        **sharing_of(loader),
        **bound_of(loader),
    }


def samples_of(loader: DataLoader[Any]) -> int | None:
    """Samples of an epoch on this rank; `None` where nothing tells."""
    if isinstance(loader.dataset, IterableDataset):
        return length_of(loader.dataset)
    sampler = getattr(cut_by(loader), "sampler", None)
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
    named = loader.drop_last or getattr(cut_by(loader), "drop_last", None)
    return _is_short_of_one(loader, seen) if named is None else bool(named)


def _is_short_of_one(loader: DataLoader[Any], seen: int | None) -> bool:
    """Whether a batch sampler of the script's own has one batch fewer than hold all samples."""
    size, samples = attribute_size(loader.batch_sampler) or seen, samples_of(loader)
    if not size or not samples or not samples % size:
        return False
    return length_of(loader.batch_sampler) == samples // size


def sampler_name(loader: DataLoader[Any]) -> str:
    """The class that chooses the samples: the batch sampler where it is one of the script's."""
    batch_sampler = cut_by(loader)
    batch_sampler = getattr(batch_sampler, "_native", batch_sampler)
    if batch_sampler is not None and type(batch_sampler) is not BatchSampler:
        return type(batch_sampler).__name__
    # A loader that was given a batch sampler has a sampler of its own that nobody asks.
    return type(getattr(batch_sampler, "sampler", loader.sampler)).__name__


MOST_DRAWN_S = 1.0
"""A pass of a batch sampler is given up after so long."""


def bound_of(loader: DataLoader[Any]) -> dict[str, int]:
    """The batches of a pass, where the length of the script's own batch sampler is only a bound.

    One that leaves duplicates out, for example, cannot tell before how many it will draw.
    """
    native: Any = getattr(loader.batch_sampler, "_native", loader.batch_sampler)
    length = None if native is None or type(native) is BatchSampler else length_of(native)
    if length is None:
        return {}
    num_drawn, until_s = 0, time.monotonic() + MOST_DRAWN_S
    try:
        for _ in iter(native):
            num_drawn += 1
            if num_drawn >= length or time.monotonic() > until_s:
                return {}
    except Exception:  # noqa: BLE001  the script's own code
        return {}
    return {"num_drawn": num_drawn}
