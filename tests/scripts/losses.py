"""203 samples in batches of 40: the last batch holds 3. What they weigh depends on the loss.

    python losses.py mean|sum|infonce|clipped|dropout|noise|own_norm|rows|stateful

mean, sum: cross entropy, reduced so, behind a BatchNorm. infonce: two towers whose pairs are told
from the others of their batch. clipped: a sum with clipped gradients, through a scaler, over two
micro-batches. dropout: a mean behind dropout layers. noise: inputs get much noise in the loop.
own_norm: a mean behind a norm of the script's own over the batch. rows: a mean of a vocabulary,
with padding left out. stateful: a state that has as many rows as the batch before.
"""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class OwnNorm(nn.Module):
    def forward(self, x):
        return (x - x.mean(0)) / (x.std(0) + 1e-3)


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(12, 16), nn.Linear(12, 16)

    def forward(self, x):
        return F.normalize(self.left(x), dim=1), F.normalize(self.right(x.sin()), dim=1)


def model_of(kind):
    if kind == "infonce":
        return Towers()
    middle = {"mean": nn.BatchNorm1d(32), "sum": nn.BatchNorm1d(32), "own_norm": OwnNorm()}
    between = [middle[kind]] if kind in middle else []
    drops = [nn.Dropout(0.5)] if kind == "dropout" else []
    return nn.Sequential(nn.Linear(12, 32), *between, nn.ReLU(), *drops, nn.Linear(32, 5))


def loss_of(kind, model, x, y, state):
    if kind == "infonce":
        left, right = model(x)
        return F.cross_entropy(left @ right.T / 0.2, torch.arange(len(x)))
    if kind == "noise":
        x = x + 3 * torch.randn_like(x)
    output = model(x)
    if kind == "stateful":
        output = output + state.pop() if state else output
        state.append(output.detach())
    if kind == "rows":
        return F.cross_entropy(output, y.where(x[:, 0] > 0, -100))
    return F.cross_entropy(output, y, reduction="sum" if kind in ("sum", "clipped") else "mean")


def main(kind):
    torch.manual_seed(3)
    x, y = torch.randn(203, 12), torch.randint(0, 5, (203,))
    loader = DataLoader(TensorDataset(x, y), batch_size=40)
    model, state = model_of(kind), []
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    micro = 2 if kind == "clipped" else 1
    scaler = torch.amp.GradScaler("cpu", enabled=kind == "clipped")
    for _ in range(400):
        for number, (inputs, targets) in enumerate(loader):
            model.train()
            if kind == "stateful" and len(inputs) != 40:
                state.clear()
            scaler.scale(loss_of(kind, model, inputs, targets, state) / micro).backward()
            if (number + 1) % micro == 0:
                scaler.unscale_(optimizer)
                if kind == "clipped":
                    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()


if __name__ == "__main__":
    main(sys.argv[1])
