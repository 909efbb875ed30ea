"""An accelerate script for several processes on the CPU that share each batch of the loader."""

import sys

from accelerate import DataLoaderConfiguration
from accelerate_dispatch import samples, train
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

data = samples(4000)


class Chunks:
    def __init__(self, num_samples, batch_size):
        self.num_samples, self.batch_size, self.drop_last = num_samples, batch_size, False

    def __iter__(self):
        for start in range(0, self.num_samples, self.batch_size):
            yield list(range(start, min(start + self.batch_size, self.num_samples)))

    def __len__(self):
        return -(-self.num_samples // self.batch_size)


class Stream(IterableDataset):
    def __iter__(self):
        return (data[index] for index in range(len(data)))

    def __len__(self):
        return len(data)


def loader_of(kind):
    if kind == "sampler":
        batches = Chunks(len(data), batch_size=16)
        return DataLoader(data, batch_sampler=batches)
    if kind == "stream":
        return DataLoader(Stream(), batch_size=16)
    return DataLoader(data, batch_size=16)


def main(kind):
    config = DataLoaderConfiguration(split_batches=True, dispatch_batches=False)
    train(config, loader_of(kind), nn.ReLU(), 1000)


if __name__ == "__main__":
    main(sys.argv[1])
