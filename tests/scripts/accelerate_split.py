"""An accelerate script for several processes on the CPU that share each batch of the loader."""

import sys

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

x = torch.randn(4000, 16)
data = TensorDataset(x, x.sum(1, keepdim=True))


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
    accelerator = Accelerator(cpu=True, dataloader_config=config)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader_of(kind))
    for _ in range(1000):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()


if __name__ == "__main__":
    main(sys.argv[1])
