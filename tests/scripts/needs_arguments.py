"""Refuses to start without its positional argument: the kind of curve to fit."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CURVES = {"sin": torch.sin, "square": torch.square, "abs": torch.abs}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("curve", choices=sorted(CURVES))
    parser.add_argument("-b", "--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()

    torch.manual_seed(20)
    x = torch.rand(1600, 1) * 6 - 3
    ds = TensorDataset(x, CURVES[args.curve](x))
    loader = DataLoader(ds, batch_size=args.batch_size, shuffle=True)
    model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(args.epochs):
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"{args.curve} epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
