"""Two workers started with "spawn": the Dataset class lives in this file and is imported again by
each worker, so the main guard matters."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Polynomials(Dataset):
    """Find the coefficients of a cubic from 12 of its values."""

    def __init__(self, n):
        self.n = n
        self.powers = torch.linspace(-1, 1, 12)[:, None] ** torch.arange(4)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        coefficients = torch.randn(4, generator=torch.Generator().manual_seed(i))
        return self.powers @ coefficients, coefficients


def main():
    torch.manual_seed(10)
    loader = DataLoader(
        Polynomials(1000),
        batch_size=10,
        shuffle=True,
        num_workers=2,
        multiprocessing_context="spawn",
        persistent_workers=True,
    )
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for epoch in range(5):
        for values, coefficients in loader:
            optimizer.zero_grad()
            loss = nn.functional.l1_loss(model(values), coefficients)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
