"""Raises a ValueError in its own code after 5 optimizer steps."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def check(step, loss):
    if step == 5:
        raise ValueError(f"loss {loss:.3f} looks wrong at step {step}")


def main():
    torch.manual_seed(17)
    x = torch.randn(1000, 10)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=10, shuffle=True)
    model = nn.Linear(10, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    for epoch in range(2):
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            check(step, loss.item())
        print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
