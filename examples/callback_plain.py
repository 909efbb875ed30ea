"""The profiling callback in a plain loop of torch.

python examples/callback_plain.py
batchadvisor advise runs/callback_plain
"""

import argparse

import torch
from batchadvisor import ProfilingCallback
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--logdir", default="runs/callback_plain")
parser.add_argument("--epochs", type=int, default=5)
args = parser.parse_args()

torch.manual_seed(0)
x = torch.randn(5000, 64)
y = (x[:, 0] * x[:, 1] > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

with ProfilingCallback(logdir=args.logdir) as prof:
    for epoch in range(args.epochs):
        total = 0.0
        for inputs, labels in prof.watch(loader):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            prof.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
