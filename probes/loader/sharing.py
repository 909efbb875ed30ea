"""How ranks share the samples of a loader, as far as its own objects say."""

from __future__ import annotations

import gc
import sys
from typing import Any

from torch.utils.data import DataLoader, IterableDataset


def sharing_of(loader: DataLoader[Any]) -> dict[str, Any]:
    """The fields of `LoaderInfo` about samplers of several ranks, and about Accelerate."""
    batch_sampler = getattr(loader.batch_sampler, "_native", loader.batch_sampler)
    sampler = getattr(batch_sampler, "sampler", None)
    dispatcher = dispatcher_of(loader)
    owner = dispatcher  # of even_batches and split_batches
    if "Shard" in type(batch_sampler).__name__:  # around the script's own batch sampler
        owner = batch_sampler
        sampler = getattr(getattr(batch_sampler, "batch_sampler", None), "sampler", None)
    elif type(loader.dataset).__name__ == "IterableDatasetShard":
        owner = loader.dataset
    accelerate = owner is not None
    return {
        "dataset_samples": _samples(loader, sampler),
        "sampler_drop_last": "Distributed" in type(sampler).__name__
        and bool(getattr(sampler, "drop_last", False)),
        "even_batches": bool(getattr(owner, "even_batches", True)) if accelerate else None,
        "split_batches": bool(getattr(owner, "split_batches", False)) if accelerate else None,
        "dispatch_batches": dispatcher is not None if accelerate else None,
    }


def own_dataset(loader: DataLoader[Any]) -> Any:
    """The script's own data set, which Accelerate may have put into a shard for each rank."""
    dataset = loader.dataset
    is_shard = type(dataset).__name__ == "IterableDatasetShard"
    return getattr(dataset, "dataset", dataset) if is_shard else dataset


def whole_of(loader: DataLoader[Any]) -> tuple[int, int] | None:
    """The size that the script named for a loader that Accelerate's `split_batches` shares out, and
    the ranks that share each of its batches; `None` of another loader."""
    batch_sampler: Any = getattr(loader.batch_sampler, "_native", loader.batch_sampler)
    for owner in (batch_sampler, loader.dataset):
        ranks, size = getattr(owner, "num_processes", 1), getattr(owner, "batch_size", None)
        if "Shard" in type(owner).__name__ and getattr(owner, "split_batches", False):
            return (size, ranks) if size and ranks > 1 else None
    return None


def dispatcher_of(loader: DataLoader[Any]) -> Any | None:
    """Accelerate's dispatcher around a loader: its first process reads for all ranks."""
    if "accelerate.data_loader" not in sys.modules:
        return None
    # It holds the loader and not the other way round. type(), as its __class__ is the loader's.
    return next(
        (
            candidate
            for candidate in gc.get_objects()
            if type(candidate).__name__ == "DataLoaderDispatcher"
            and candidate.__dict__.get("base_dataloader") is loader
        ),
        None,
    )


def why_dispatched(loader: DataLoader[Any]) -> tuple[str, str]:
    """Why no size can be asked of a loader of several ranks, and what to do; empty where it can."""
    dispatcher = dispatcher_of(loader)
    ranks = getattr(getattr(dispatcher, "state", None), "num_processes", 1)
    if dispatcher is None or ranks < 2:
        return "", ""
    samples = _samples(loader, None)
    facts = [f"--samples {'N' if samples is None else samples}", f"--ranks {ranks}"]
    facts.append(f"--batch-size {getattr(loader.batch_sampler, 'batch_size', None) or 'B'}")
    facts += ["--drop-last"] if dispatcher.__dict__.get("_drop_last") else []
    facts += ["--split-batches"] if dispatcher.__dict__.get("split_batches") else []
    how = "dispatch_batches=True"
    if isinstance(loader.dataset, IterableDataset):
        facts.append("--iterable")
        how = "dispatch_batches, its default for an iterable dataset"
    reason = f"Accelerate's first process reads the batches of all {ranks} ({how})"
    remedy = (
        "run it with DataLoaderConfiguration(dispatch_batches=False), or on one process; what its "
        "epochs end in: batchadvisor tails --setup accelerate --dispatch-batches "
        f"{' '.join(facts)}."
    )
    return reason, remedy


def _samples(loader: DataLoader[Any], sampler: Any) -> int | None:
    """Samples of the data set over all ranks, `None` where nothing tells."""
    dataset: Any = getattr(sampler, "dataset", None)
    return length_of(own_dataset(loader) if dataset is None else dataset)


def length_of(thing: Any) -> int | None:
    """Its length; `None` of what has none: streams, and classes of scripts that inherit one.

    Nor has one whose own code cannot tell it yet.
    """
    try:
        return len(thing)
    except Exception:  # noqa: BLE001  the script's own code
        return None
