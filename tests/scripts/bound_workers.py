"""Data workers of a script that may have lost its cores while torch was imported (OMP_PROC_BIND)."""

import os
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset


def on_all_cores(worker):
    os.sched_setaffinity(0, range(os.cpu_count()))


model = torch.nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(
    TensorDataset(torch.randn(20_000, 64)),
    batch_size=16,
    num_workers=2,
    worker_init_fn=on_all_cores if "--all-cores" in sys.argv else None,
)
for epoch in range(100):
    for (batch,) in loader:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
