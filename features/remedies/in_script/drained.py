"""The loader alone: what it gives with so many workers, where nobody trains meanwhile."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec
import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from ....probes.loader.cycled_dataset import own_of
from ....probes.windows.warm_up import QUEUED
from ..records import Ceiling
from ..settings import Drain
from .numbers import digest_of

LEAST_BATCHES = 3
"""Batches after the first that are read at the least."""
SLOW_FACTOR = 4.0
"""One number of workers takes at most so many times what is asked, where batches come slowly."""
STARTS = 3
REPEATS = "each data worker gives all samples of its stream, which does not share them out"


def drained(loader: DataLoader[Any] | None, asked: Drain) -> list[Ceiling]:
    """Reads from a second loader of the same data set, with each number of workers in turn."""
    with without_hooks():
        more = [
            n for n in asked.num_workers if n > 1 and (loader is None or n != loader.num_workers)
        ]
        if loader is None or not more or not repeats(loader, asked.batch_size):
            more = []
        return [
            Ceiling(num_workers=number, reason=REPEATS, repeats=True)
            if number in more
            else one(loader, number, asked)
            for number in asked.num_workers
        ]


def repeats(loader: DataLoader[Any], batch_size: int) -> bool:
    """Whether two workers give the same batches: a stream that they do not share out.

    Their batches come in turn. A stream of one batch over and over shows nothing.
    """
    with twin_of(loader, 2, batch_size, persistent=False) as twin:
        if not isinstance(twin.dataset, IterableDataset):
            return False
        try:
            found = [digest_of(batch) for batch in islice(twin, 4)]
        except Exception:  # noqa: BLE001  whatever the data set raises is told of each number
            return False
    return len(found) == 4 and found[::2] == found[1::2] and found[0] != found[2]


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
    try:
        found = read(loader, number, asked)
        if number and number == asked.restarted:
            found = msgspec.structs.replace(
                found,
                starts_s=starts(loader, number, asked, persistent=False),
                persistent_s=starts(loader, number, asked, persistent=True),
            )
    except Exception as error:  # noqa: BLE001  whatever the data set raises
        words = (str(error).strip().splitlines() or [""])[-1]
        return Ceiling(num_workers=number, reason=f"{type(error).__name__}: {words}")
    return found


@contextlib.contextmanager
def twin_of(
    loader: DataLoader[Any], number: int, batch_size: int, *, persistent: bool
) -> Iterator[DataLoader[Any]]:
    """A loader of the same samples, in batches of this size, whose workers end with it."""
    dataset: Any = own_of(loader.dataset)
    options: dict[str, Any] = {
        "batch_size": batch_size,
        "num_workers": number,
        "collate_fn": loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "worker_init_fn": loader.worker_init_fn,
        "timeout": loader.timeout if number else 0,
    }
    if number:
        options["persistent_workers"] = persistent
        options["multiprocessing_context"] = loader.multiprocessing_context
        options["prefetch_factor"] = loader.prefetch_factor
    if not isinstance(dataset, IterableDataset):
        options["sampler"] = RandomSampler(dataset, generator=torch.Generator())
    twin: DataLoader[Any] = DataLoader(dataset, **options)
    try:
        yield twin
    finally:
        stop(twin._iterator)


def read(loader: DataLoader[Any], number: int, asked: Drain) -> Ceiling:
    """Batches for as long as is asked, over as many epochs as that takes."""
    with twin_of(loader, number, asked.batch_size, persistent=True) as twin:
        ends_s = time.perf_counter() + SLOW_FACTOR * asked.limit_s
        num_batches, spent_s = -number * QUEUED, 0.0  # made while the first came
        while _wants_more(num_batches, spent_s, number, asked.limit_s):
            iterator = iter(twin)
            if next(iterator, None) is None:
                return Ceiling(num_workers=number, reason="it gave no batch")
            while _wants_more(num_batches, spent_s, number, asked.limit_s):
                begun_s = time.perf_counter()
                if next(iterator, None) is None:
                    break
                num_batches += 1
                spent_s += time.perf_counter() - begun_s if num_batches > 0 else 0.0
                if num_batches > 0 and time.perf_counter() > ends_s:
                    break
            if time.perf_counter() > ends_s:
                break
    if num_batches <= 0 or spent_s <= 0:
        return Ceiling(num_workers=number, reason="its batches came too slowly to time them")
    return Ceiling(num_workers=number, samples_per_s=num_batches * asked.batch_size / spent_s)


def _wants_more(num_batches: int, spent_s: float, number: int, limit_s: float) -> bool:
    return spent_s < limit_s or num_batches < max(LEAST_BATCHES, 2 * number)


def starts(
    loader: DataLoader[Any], number: int, asked: Drain, *, persistent: bool
) -> tuple[float, ...]:
    """Seconds to the first batch of an epoch; of workers that persist, after they started once."""
    taken_s: list[float] = []
    with twin_of(loader, number, asked.batch_size, persistent=persistent) as twin:
        for _ in range(STARTS + persistent):
            begun_s = time.perf_counter()
            iterator = iter(twin)
            next(iterator, None)
            taken_s.append(time.perf_counter() - begun_s)
            if not persistent:
                stop(iterator)
    return tuple(taken_s[int(persistent) :])


def stop(iterator: Any) -> None:
    """Ends the workers of an iterator, if it has any."""
    if hasattr(iterator, "_shutdown_workers"):
        iterator._shutdown_workers()
