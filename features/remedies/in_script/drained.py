"""The loader alone: what it gives with so many workers, where nobody trains meanwhile."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from ....probes.loader.cycled_dataset import CycledDataset
from ....probes.windows.warm_up import QUEUED
from ..records import Ceiling
from ..settings import Drain

LEAST_BATCHES = 3
"""Batches after the first that are read at the least."""


def drained(loader: DataLoader[Any] | None, asked: Drain) -> list[Ceiling]:
    """Reads from a second loader of the same data set, with each number of workers in turn."""
    with without_hooks():
        return [one(loader, number, asked) for number in asked.num_workers]


@contextlib.contextmanager
def without_hooks() -> Iterator[None]:
    """What is read meanwhile is no batch of the script's: nobody is told of it."""
    hooked = [
        (kind, name, vars(kind)[name])
        for kind in (DataLoader, _BaseDataLoaderIter)
        for name in ("__init__", "__next__", "_reset")
        if name in vars(kind)
    ]
    try:
        for kind, name, function in hooked:
            setattr(kind, name, native_of(function))
        yield
    finally:
        for kind, name, function in hooked:
            setattr(kind, name, function)


def native_of(function: Any) -> Any:
    """The function below all hooks."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def one(loader: DataLoader[Any] | None, number: int, asked: Drain) -> Ceiling:
    """One number of workers. What the loader raises is the reason."""
    if loader is None:
        return Ceiling(num_workers=number, reason="the script let its loader go")
    twin = None
    try:
        twin = twin_of(loader, number, asked.batch_size)
        return read(twin, number, asked)
    except Exception as error:  # noqa: BLE001  whatever the data set raises
        words = (str(error).strip().splitlines() or [""])[-1]
        return Ceiling(num_workers=number, reason=f"{type(error).__name__}: {words}")
    finally:
        if twin is not None:
            stop(twin)


def twin_of(loader: DataLoader[Any], number: int, batch_size: int) -> DataLoader[Any]:
    """A loader of the same samples, in batches of this size."""
    dataset: Any = loader.dataset
    if isinstance(dataset, CycledDataset):
        dataset = dataset.dataset
    options: dict[str, Any] = {
        "batch_size": batch_size,
        "num_workers": number,
        "collate_fn": loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "worker_init_fn": loader.worker_init_fn,
        "timeout": loader.timeout if number else 0,
    }
    if number:
        options["persistent_workers"] = True
        options["multiprocessing_context"] = loader.multiprocessing_context
        options["prefetch_factor"] = loader.prefetch_factor
    if not isinstance(dataset, IterableDataset):
        generator = torch.Generator()
        options["sampler"] = RandomSampler(dataset, generator=generator)
    return DataLoader(dataset, **options)


def read(twin: DataLoader[Any], number: int, asked: Drain) -> Ceiling:
    """Batches for as long as is asked, over as many epochs as that takes."""
    started_s = time.perf_counter()
    iterator = iter(twin)
    batch = next(iterator, None)
    first_s = time.perf_counter()
    if batch is None:
        return Ceiling(num_workers=number, reason="it gave no batch")
    again_s = None
    num_ready = number * QUEUED  # made while the first came
    num_batches, spent_s = -num_ready, 0.0
    while spent_s < asked.limit_s or num_batches < max(LEAST_BATCHES, 2 * number):
        begun_s = time.perf_counter()
        batch = next(iterator, None)
        if batch is not None:
            num_batches += 1
            spent_s += time.perf_counter() - begun_s if num_batches > 0 else 0.0
            if time.perf_counter() - started_s > 4 * asked.limit_s and num_batches > 0:
                break
            continue
        iterator = iter(twin)
        batch = next(iterator, None)
        if number:
            again_s = time.perf_counter() - begun_s
        if batch is None or time.perf_counter() - started_s > 4 * asked.limit_s:
            break
    rate = num_batches * asked.batch_size / spent_s if num_batches > 0 and spent_s > 0 else None
    return Ceiling(
        num_workers=number,
        samples_per_s=rate,
        start_s=first_s - started_s,
        again_s=again_s,
        reason="" if rate is not None else "an epoch has too few batches to time them",
    )


def stop(twin: DataLoader[Any]) -> None:
    """Ends its workers."""
    iterator: Any = twin._iterator
    if iterator is not None and hasattr(iterator, "_shutdown_workers"):
        iterator._shutdown_workers()
