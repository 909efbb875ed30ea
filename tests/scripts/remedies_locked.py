"""Each sample takes a sleep under one lock of all processes: data workers wait for each other."""

import multiprocessing
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SAMPLE_S = 0.004
LOCK = multiprocessing.get_context("fork").Lock()


class Locked(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        with LOCK:
            time.sleep(SAMPLE_S)
        generator = torch.Generator().manual_seed(index)
        features = torch.randn(32, generator=generator)
        return features, features[:4].sum()


model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(Locked(), batch_size=8, shuffle=True)
for epoch in range(5):
    for features, targets in loader:
        loss = nn.functional.mse_loss(model(features)[:, 0], targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
