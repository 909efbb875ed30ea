"""Activations beyond the range of float16: its loss is no number under fp16, and fine under bf16."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
features = 3000 * torch.randn(2000, 64)
targets = features[:, :4].sum(dim=1) / 3000
loader = DataLoader(TensorDataset(features, targets), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
with torch.no_grad():
    model[0].weight.mul_(20)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-12)
for epoch in range(50):
    for feature, target in loader:
        loss = nn.functional.mse_loss(model(feature)[:, 0], target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
