"""A step with a large cost that the batch does not change: a larger batch pays, far beyond 4.

A penalty on the weights (two products of 512 x 512 matrices, forward and backward) costs as much as
a few hundred of the small samples.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(4096, 512), torch.randn(4096, 1))
loader = DataLoader(data, batch_size=4, shuffle=True, drop_last=True)
wide = nn.Linear(512, 512)
model = nn.Sequential(wide, nn.ReLU(), nn.Linear(512, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
identity = torch.eye(512)

for _ in range(50):
    for x, y in loader:
        optimizer.zero_grad()
        squared = wide.weight @ wide.weight.T
        penalty = (squared @ squared - identity).square().mean()
        loss = (model(x) - y).square().mean() + 0.01 * penalty
        loss.backward()
        optimizer.step()
