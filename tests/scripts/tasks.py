"""Two tasks that share a model, with a loader and a step each, drawn by lot."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
random.seed(0)


def endless(loader):
    while True:
        yield from loader


def task():
    data = TensorDataset(torch.randn(2000, 20), torch.randn(2000, 1))
    return endless(DataLoader(data, batch_size=16, shuffle=True))


tasks = [task(), task()]
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(20_000):
    x, y = next(random.choice(tasks))
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
