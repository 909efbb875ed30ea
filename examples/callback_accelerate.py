"""The profiling callback with Accelerate.

python examples/callback_accelerate.py
accelerate launch examples/callback_accelerate.py
"""

import argparse

import torch
from accelerate import Accelerator
from batchadvisor.callback import AccelerateCallback
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--logdir", default="runs/callback_accelerate")
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()

accelerator = Accelerator(gradient_accumulation_steps=2)
torch.manual_seed(0)
x = torch.randn(5000, 64)
y = (x[:, 0] * x[:, 1] > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

with AccelerateCallback(accelerator, logdir=args.logdir):
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(args.epochs):
        for inputs, labels in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(inputs), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
accelerator.end_training()
