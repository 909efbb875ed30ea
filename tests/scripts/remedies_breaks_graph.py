"""A look at a value in the middle of each step, which no compiled graph can hold."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Peeks(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 256), nn.Linear(256, 1)

    def forward(self, features):
        hidden = self.first(features)
        if hidden.abs().mean().item() > 1e6:
            hidden = hidden / 2
        return self.second(hidden)


features = torch.randn(2000, 64)
targets = features.sum(dim=1)
loader = DataLoader(TensorDataset(features, targets), batch_size=64, shuffle=True)
model = Peeks()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for epoch in range(200):
    for feature, target in loader:
        loss = nn.functional.mse_loss(model(feature)[:, 0], target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
