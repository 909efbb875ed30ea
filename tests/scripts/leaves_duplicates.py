"""In the style of sentence-transformers' NoDuplicatesBatchSampler: its length is a bound."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class NoDuplicatesBatchSampler:
    """Batches without two samples of one text; what fits into none is left out."""

    def __init__(self, texts, batch_size):
        self.texts, self.batch_size = texts, batch_size

    def __len__(self):
        return len(self.texts) // self.batch_size

    def __iter__(self):
        left = torch.randperm(len(self.texts)).tolist()
        while left:
            batch, seen, rest = [], set(), []
            for index in left:
                fits = len(batch) < self.batch_size and self.texts[index] not in seen
                (batch if fits else rest).append(index)
                seen.add(self.texts[index]) if fits else None
            if len(batch) < self.batch_size:
                return
            yield batch
            left = rest


class Pairs(Dataset):
    def __init__(self, batch_size):
        self.batch_size = batch_size  # as StreamingDataset has it
        self.features, self.target = torch.randn(400, 8), torch.randn(400, 1)
        self.texts = [min(number, 39) for number in range(400)]  # most are one and the same

    def __len__(self):
        return len(self.features)

    def __getitem__(self, index):
        return self.features[index], self.target[index]


torch.manual_seed(0)
pairs = Pairs(batch_size=4)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(10_000):
    for features, target in DataLoader(
        pairs, batch_sampler=NoDuplicatesBatchSampler(pairs.texts, batch_size=4)
    ):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(features), target).backward()
        optimizer.step()
