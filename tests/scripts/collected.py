"""Each sample is an object of many, beside a large heap: Python's collector has much to walk."""

import gc
import sys

import torch
from torch.utils.data import DataLoader, Dataset

HEAP = [[number] for number in range(600_000)]


class Samples(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return [[torch.ones(8)] for _ in range(20)]


def collate(samples):
    return torch.stack([part[0] for sample in samples for part in sample])


model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if "--freeze" in sys.argv:
    gc.freeze()
for epoch in range(100):
    for batch in DataLoader(Samples(), batch_size=512, collate_fn=collate):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
