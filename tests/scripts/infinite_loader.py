"""A loader of the script's own around torch's, which gets its size as one of `**kwargs`."""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset


class InfiniteDataLoader:
    def __init__(self, dataset, **kwargs):
        sampler = RandomSampler(dataset, replacement=True, num_samples=int(1e10))
        self.train_loader = DataLoader(dataset, sampler=sampler, **kwargs)
        self.data_iter = iter(self.train_loader)

    def next(self):
        return next(self.data_iter)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", "-b", type=int, default=32)
    args = parser.parse_args()
    Path("notes.txt").write_text("begun\n")
    x = torch.randn(500, 8)
    batches = InfiniteDataLoader(TensorDataset(x, x.sum(1)), batch_size=args.batch_size)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        inputs, targets = batches.next()
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs)[:, 0], targets).backward()
        optimizer.step()
