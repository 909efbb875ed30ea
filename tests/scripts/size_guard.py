"""Skips every batch that does not have exactly 16 samples, to be rid of the last, short one."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(23)
    x = torch.randn(2405, 16)
    loader = DataLoader(TensorDataset(x, x.argmax(1)), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(5):
        steps = 0
        for x, labels in loader:
            if x.size(0) != 16:
                continue
            loss = nn.functional.cross_entropy(model(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
        print(f"epoch {epoch}: loss {loss.item():.4f} after {steps} steps")


if __name__ == "__main__":
    main()
