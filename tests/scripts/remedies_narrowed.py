"""An import leaves one core to the training and to its data worker, which both compute."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # as some libraries do on import


def counted(number):
    total = 0
    for each in range(number):
        total += each % 7
    return total


class Counts(Dataset):
    def __len__(self):
        return 64_000

    def __getitem__(self, index):
        return torch.ones(8), torch.tensor([float(counted(60_000))])


loader = DataLoader(Counts(), batch_size=4, num_workers=1)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for epoch in range(5):
    for features, targets in loader:
        loss = nn.functional.mse_loss(model(features), targets / 1e5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        counted(240_000)
