"""Dies of a segmentation fault after 6 steps, as a broken extension would make it."""

import ctypes

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(19)
    x = torch.randn(2000, 16)
    ds = TensorDataset(x, x.norm(dim=1, keepdim=True))
    loader = DataLoader(ds, batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    for epoch in range(2):
        for inputs, targets in loader:
            step += 1
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step == 6:
                ctypes.string_at(0)
        print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
