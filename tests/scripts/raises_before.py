"""Raises a ValueError in its own code before any training."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build_model(kind):
    if kind == "linear":
        return nn.Linear(10, 1)
    raise ValueError(f"unknown model {kind!r}")


def main():
    torch.manual_seed(17)
    x = torch.randn(500, 10)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=10, shuffle=True)
    model = build_model("quadratic")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
