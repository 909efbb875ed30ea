"""Blocks that keep 512 KiB for each sample and cost little, and a slow update: memory bounds the size."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.LeakyReLU(), nn.LeakyReLU(0.5))

    def forward(self, x):
        return x + self.layers(x)


data = TensorDataset(torch.randn(512, 512, 64), torch.randn(512, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
blocks = nn.Sequential(*(Block() for _ in range(12)))
head = nn.Linear(64, 1)
optimizer = torch.optim.SGD([*blocks.parameters(), *head.parameters()], lr=1e-3)
for epoch in range(50):
    for features, targets in loader:
        loss = nn.functional.mse_loss(head(blocks(features).mean(1)), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.15)  # what a step costs, whatever its size
