"""Trains on the GPU with 64 MiB of activations a sample, so that any card is full soon."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CHANNELS = 4 * 1024 * 1024
"""Values a sample and layer; four bytes each."""

loader = DataLoader(TensorDataset(torch.randn(200_000, 1)), batch_size=8, drop_last=True)
scale = nn.Parameter(torch.ones(4, CHANNELS, device="cuda"))
optimizer = torch.optim.SGD([scale], lr=1e-3)
for (batch,) in loader:
    x = batch.cuda()
    for layer in range(4):
        x = torch.sigmoid(x * scale[layer])
    optimizer.zero_grad()
    x.mean().backward()
    optimizer.step()
