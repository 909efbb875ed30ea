"""Loaders that tests steer, and a pass of the script over one."""

import torch
from batchadvisor.probes.loader.loader_handle import LoaderHandle
from torch.utils.data import (
    BatchSampler,
    IterableDataset,
    TensorDataset,
)
from torch.utils.data.dataloader import _BaseDataLoaderIter

NATIVE_NEXT = _BaseDataLoaderIter.__next__


class Pass:
    """One pass of the script over a loader, fetched the way steering fetches."""

    def __init__(self, loader, handle, *, training=True):
        self.handle = handle
        self.iterator = iter(loader)
        self.training = training

    def __iter__(self):
        return self

    def __next__(self):
        return self.handle.fetch(self.iterator, NATIVE_NEXT, training=self.training)

    def sizes(self, num):
        return [length(next(self)) for _ in range(num)]


def length(batch):
    return len(batch[0]) if isinstance(batch, (list, tuple)) else len(batch)


def steered(loader, cap=None, *, worst_case=False):
    return LoaderHandle(loader, 0, None, None, cap, worst_case=worst_case)


def info_of(loader):
    return steered(loader).info()


def numbers(num=100):
    return TensorDataset(torch.arange(float(num)), torch.arange(num))


class Stream(IterableDataset):
    def __init__(self, num=20, promised=None):
        self.num = num
        self.promised = promised

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        step = info.num_workers if info else 1
        return iter(range(info.id if info else 0, self.num, step))

    def __len__(self):
        if self.promised is None:
            raise TypeError("no length")
        return self.promised


class ByHalf(BatchSampler):
    """A batch sampler of the script's own: batches lie in one half of the data."""

    def __init__(self, num, batch_size):
        self.num, self.batch_size = num, batch_size

    def __iter__(self):
        half = self.num // 2
        for start in (0, half):
            for at in range(start, start + half - self.batch_size + 1, self.batch_size):
                yield list(range(at, at + self.batch_size))

    def __len__(self):
        return 2 * (self.num // 2 // self.batch_size)


class Fixed:
    """Batches of five, whatever its attribute says."""

    def __init__(self, num):
        self.num, self.batch_size = num, 5

    def __iter__(self):
        for at in range(0, self.num, 5):
            yield list(range(at, min(at + 5, self.num)))

    def __len__(self):
        return (self.num + 4) // 5
