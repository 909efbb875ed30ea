"""No optimizer: the script accumulates gradients over two batches and writes its parameters itself."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--without-loader", action="store_true")
args = parser.parse_args()

torch.manual_seed(3)
data = TensorDataset(torch.randn(1600, 12), torch.randn(1600, 1))
model = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 1))
loader = DataLoader(data, batch_size=args.batch_size, shuffle=True)


def cut():
    while True:
        yield data[torch.randint(1600, (args.batch_size,))]


for _ in range(200):
    for number, (x, y) in enumerate(cut() if args.without_loader else loader):
        loss = nn.functional.mse_loss(model(x), y) / 2
        loss.backward()
        if number % 2:
            for parameter in model.parameters():
                parameter.data.add_(parameter.grad, alpha=-0.1)
            model.zero_grad()
