"""Two gains that have nothing to do with each other: samples sleep, and many parameters are updated."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SAMPLE_S = 0.004


class Sleeping(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep(SAMPLE_S)
        generator = torch.Generator().manual_seed(index)
        features = torch.randn(8, generator=generator)
        return features, features[:4].sum()


torch.manual_seed(0)
blocks = [nn.Sequential(*(nn.Linear(8, 8) for _ in range(6))) for _ in range(40)]
model = nn.Sequential(nn.Linear(8, 8), *blocks, nn.Linear(8, 1))
optimizer = torch.optim.AdamW(
    model.parameters(),
    lr=1e-3,  # the usual one
)
loader = DataLoader(Sleeping(), batch_size=4, shuffle=True)
for epoch in range(20):
    for features, targets in loader:
        loss = nn.functional.mse_loss(model(features)[:, 0], targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
