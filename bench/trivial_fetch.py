"""A training loop in which nothing but the fetch takes time; notes how long each fetch took.

BENCH_STAMPS names the file for the times, BENCH_NUM_STEPS the steps after which it ends; without
the latter it goes on until it is ended.
"""

from __future__ import annotations

import os
import time

import torch
from stamped import CAPACITY, Stamps
from torch.utils.data import DataLoader


def main() -> None:
    """Trains one number on nothing."""
    stamps = Stamps(os.environ["BENCH_STAMPS"])
    num_steps = int(os.environ.get("BENCH_NUM_STEPS", CAPACITY + 1))
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    loader = DataLoader(range(1 << 20), batch_size=16)
    clock = time.perf_counter
    iterator = iter(loader)
    for _ in range(num_steps):
        start = clock()
        next(iterator)
        stamps.add(clock() - start)
        optimizer.step()


if __name__ == "__main__":
    main()
