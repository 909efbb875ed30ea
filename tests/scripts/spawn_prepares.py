"""Processes prepare the data, and train nothing; the training is in the script itself, or follows.

With `ranks` the training is started through torch.multiprocessing as well.
"""

import sys
import tempfile
from pathlib import Path

import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def prepare(part):
    torch.save(torch.arange(100), "not_written.pt")
    Path(f"part-{part}.txt").write_text("prepared\n")


def train():
    x = torch.randn(2000, 8)
    loader = DataLoader(TensorDataset(x, x.sum(1)), batch_size=16)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(3):
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs)[:, 0], targets).backward()
            optimizer.step()


def main():
    mp.spawn(prepare, nprocs=2)
    assert sorted(path.name for path in Path().glob("part-*")) == ["part-0.txt", "part-1.txt"]
    if "ranks" in sys.argv:
        from spawn_ddp import train as rank

        results = mp.get_context("spawn").SimpleQueue()
        mp.spawn(rank, args=(2, tempfile.mktemp(prefix="rendezvous-"), results), nprocs=2)
    else:
        train()


if __name__ == "__main__":
    main()
