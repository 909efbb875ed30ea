"""The dataset raises a KeyError for sample 50: one entry is missing. The order is not shuffled."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Gappy(Dataset):
    def __init__(self, n=400):
        g = torch.Generator().manual_seed(17)
        self.samples = {i: torch.randn(10, generator=g) for i in range(n) if i != 50}
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        x = self.samples[i]
        return x, x.sum()


def main():
    torch.manual_seed(17)
    loader = DataLoader(Gappy(), batch_size=10)
    model = nn.Linear(10, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs).squeeze(1), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
