"""In the style of timm's train_one_epoch: what is accumulated at an epoch's end is counted from
`len(loader)`.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, default=320)
parser.add_argument("--workers", type=int, default=0)
args = parser.parse_args()

torch.manual_seed(0)
data = TensorDataset(torch.randn(args.samples, 32), torch.randn(args.samples, 1))
model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(
    data,
    batch_size=8,
    shuffle=True,
    num_workers=args.workers,
    persistent_workers=args.workers > 0,
)


def train_one_epoch(accum_steps=4):
    last_accum_steps = len(loader) % accum_steps
    last_batch_idx = len(loader) - 1
    last_batch_idx_to_accum = len(loader) - last_accum_steps
    for batch_idx, (features, target) in enumerate(loader):
        last_batch = batch_idx == last_batch_idx
        need_update = last_batch or (batch_idx + 1) % accum_steps == 0
        if batch_idx >= last_batch_idx_to_accum:
            accum_steps = last_accum_steps
        loss = nn.functional.mse_loss(model(features), target) / accum_steps
        loss.backward()
        if need_update:
            optimizer.step()
            optimizer.zero_grad()


for _ in range(100_000):
    train_one_epoch()
    with torch.no_grad():
        model(data.tensors[0])
