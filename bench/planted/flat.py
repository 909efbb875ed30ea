"""A saturated step: each sample keeps the cores busy by itself, so that throughput is flat.

A sample is 128 rows for layers of 512 x 512: from the first few samples on the time of a step is
that of its samples, and no size is much better than the script's own, 4.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(1024, 128, 128), torch.randn(1024, 128, 1))
loader = DataLoader(data, batch_size=4, shuffle=True, drop_last=True)
model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                      nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

for _ in range(50):
    for x, y in loader:
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
