"""`DataLoader(ds, BATCH, True)`: size and shuffle are positional, the size is a module constant."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

BATCH = 16
EPOCHS = 4


class Sines(Dataset):
    """Noisy sine waves; the task is to name the frequency."""

    def __init__(self, n):
        g = torch.Generator().manual_seed(1)
        self.freq = torch.randint(1, 6, (n,), generator=g)
        t = torch.linspace(0, 6.28, 64)
        self.waves = torch.sin(self.freq[:, None] * t) + 0.3 * torch.randn(n, 64, generator=g)

    def __len__(self):
        return len(self.freq)

    def __getitem__(self, i):
        return self.waves[i], self.freq[i] - 1


def make_model():
    return nn.Sequential(
        nn.Unflatten(1, (1, 64)),
        nn.Conv1d(1, 8, 5, stride=2),
        nn.ReLU(),
        nn.Conv1d(8, 16, 5, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(5),
    )


def train(model, loader, optimizer):
    model.train()
    for waves, target in loader:
        loss = nn.functional.cross_entropy(model(waves), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(1)
    ds = Sines(3000)
    loader = DataLoader(ds, BATCH, True)
    model = make_model()
    model(torch.zeros(1, 64))  # shapes of the lazy layer
    optimizer = torch.optim.SGD(model.parameters(), 0.05, 0.9)
    for epoch in range(EPOCHS):
        print("epoch", epoch, "last loss", round(train(model, loader, optimizer), 4))


if __name__ == "__main__":
    main()
