"""Many tiny layers: under autocast each casts its input and weight, which costs more than it is."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
features = torch.randn(2000, 16)
targets = features.sum(dim=1)
loader = DataLoader(TensorDataset(features, targets), batch_size=16, shuffle=True)
model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(60)), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for epoch in range(200):
    for feature, target in loader:
        loss = nn.functional.mse_loss(model(feature)[:, 0], target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
