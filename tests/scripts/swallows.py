"""Swallows every exception of a step, out of memory included, and goes on with the next batch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(22)
    x = torch.randn(2400, 16)
    loader = DataLoader(TensorDataset(x, x.amax(1, keepdim=True)), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    skipped = 0
    for epoch in range(5):
        for inputs, targets in loader:
            try:
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(inputs), targets)
                loss.backward()
                optimizer.step()
            except Exception:
                skipped += 1
                continue
        print(f"epoch {epoch}: loss {loss.item():.4f}, {skipped} batches skipped")


if __name__ == "__main__":
    main()
