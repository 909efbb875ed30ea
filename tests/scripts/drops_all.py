"""Fewer samples than one batch and drop_last=True: an epoch makes no step, and no error."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(0)
    x = torch.randn(40, 8)
    loader = DataLoader(TensorDataset(x, x.sum(1)), batch_size=64, shuffle=True, drop_last=True)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        total = 0.0
        for inputs, target in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs).squeeze(1), target)
            loss.backward()
            optimizer.step()
            total += loss.item()
        if "--mean" in sys.argv:
            print(total / len(loader))


if __name__ == "__main__":
    main()
