"""A dataset that yields whole batches, behind a DataLoader with batch_size=None."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Batches(IterableDataset):
    def __init__(self, size):
        self.size = size

    def __iter__(self):
        for _ in range(5000):
            x = torch.randn(self.size, 12)
            yield x, x.sum(1, keepdim=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-b", "--bs", type=int, default=20)
    args = parser.parse_args()
    model = nn.Linear(12, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in DataLoader(Batches(args.bs), batch_size=None):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
