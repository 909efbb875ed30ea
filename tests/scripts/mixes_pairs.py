"""In the style of timm's Mixup: the samples of a batch are mixed in pairs, so that it is even."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def mixed(features, target):
    assert len(features) % 2 == 0, "Batch size should be even when using this"
    return 0.7 * features + 0.3 * features.flip(0), 0.7 * target + 0.3 * target.flip(0)


torch.manual_seed(0)
data = TensorDataset(torch.randn(4000, 32), torch.randn(4000, 1))
model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(200):
    for features, target in DataLoader(data, batch_size=8, shuffle=True):
        features, target = mixed(features, target)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(features), target).backward()
        optimizer.step()
