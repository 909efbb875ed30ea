"""Every sample takes 2 ms to load (as if read from a slow disk) and there are no workers, so the
loader and not the model decides the speed at every batch size."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class SlowDisk(Dataset):
    def __init__(self, n=600):
        g = torch.Generator().manual_seed(15)
        self.x = torch.randn(n, 16, generator=g)
        self.y = self.x.abs().sum(1, keepdim=True)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        time.sleep(0.002)
        return self.x[i], self.y[i]


def main():
    torch.manual_seed(15)
    loader = DataLoader(SlowDisk(), batch_size=8, shuffle=True, num_workers=0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        start = time.perf_counter()
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}, {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
