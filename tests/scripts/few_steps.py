"""Leaves the loop after 8 optimizer steps in total: a window alone needs 9 (3 of warm-up, 6 timed)."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MAX_STEPS = 8


def main():
    torch.manual_seed(21)
    x = torch.randn(4000, 16)
    loader = DataLoader(TensorDataset(x, x.prod(1, keepdim=True)), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, (inputs, targets) in enumerate(loader, 1):
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")
        if step == MAX_STEPS:
            break
    print("done")


if __name__ == "__main__":
    main()
