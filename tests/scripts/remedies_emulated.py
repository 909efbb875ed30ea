"""Autocast takes a step seventy times longer: no window has one."""

import time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Emulated(nn.Module):
    """A layer for which this processor has no half precision."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(64, 64)

    def forward(self, x):
        time.sleep(1.5 if torch.is_autocast_enabled("cpu") else 0.02)
        return self.inner(x)


loader = DataLoader(TensorDataset(torch.randn(4096, 64)), batch_size=16)
model = nn.Sequential(Emulated(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for epoch in range(50):
    for (rows,) in loader:
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()
