"""41 samples in batches of 8: the last batch holds one. What that does depends on the model.

    python uneven_tail.py maps|flat|few|nan|stream

maps: BatchNorm over maps of 6x6, which one sample fills. flat: BatchNorm over one value per
channel, which raises. few: 43 samples, so that BatchNorm sees three. nan: inputs are scaled by
their deviation over the batch, which one sample has none of. stream: a dataset without a length.
"""

import sys

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset


class Stream(IterableDataset):
    def __init__(self, tensors):
        self.tensors = tensors

    def __iter__(self):
        yield from zip(*self.tensors)


class Scaled(nn.Module):
    def forward(self, x):
        return (x - x.mean(0)) / x.std(0)


def model_of(kind):
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1))
    body = nn.Conv2d(1, 4, 3)
    if kind == "nan":
        return nn.Sequential(Scaled(), body, head)
    if kind == "flat":
        head.insert(2, nn.BatchNorm1d(4))
    return nn.Sequential(body, nn.BatchNorm2d(4), nn.ReLU(), head)


def main(kind):
    torch.manual_seed(3)
    count = 43 if kind == "few" else 41
    x = torch.randn(count, 1, 8, 8)
    tensors = (x, x.mean((1, 2, 3)))
    dataset = Stream(tensors) if kind == "stream" else TensorDataset(*tensors)
    loader = DataLoader(dataset, batch_size=8)
    model = model_of(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(40):
        model.train()
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs).squeeze(1), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main(sys.argv[1])
