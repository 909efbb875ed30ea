"""Two loader workers, and a sixth step that never returns."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(19)
    x = torch.randn(2000, 16)
    ds = TensorDataset(x, x.norm(dim=1, keepdim=True))
    loader = DataLoader(ds, batch_size=16, shuffle=True, num_workers=2)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    for epoch in range(2):
        for inputs, targets in loader:
            step += 1
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            if step == 6:
                time.sleep(1_000_000)
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
