"""A stream: IterableDataset sharded over two persistent workers with get_worker_info."""

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    """300 samples in all, each made from its own number, so that every epoch is the same."""

    def __init__(self, length=300):
        self.length = length

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for i in range(first, self.length, step):
            g = torch.Generator().manual_seed(i)
            x = torch.randn(16, generator=g)
            yield x, x.cumsum(0)


def main():
    torch.manual_seed(4)
    loader = DataLoader(Stream(), batch_size=8, num_workers=2, persistent_workers=True)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(8):
        seen, total = 0, 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(x)
            total += loss.item() * len(x)
        print(f"epoch {epoch}: {seen} samples, loss {total / seen:.4f}")


if __name__ == "__main__":
    main()
