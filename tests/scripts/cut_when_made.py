"""Batches grouped by length and cut in `__init__`: the sampler's `batch_size` has no effect later.

Each batch prints how many samples it has and how far their lengths are apart.
"""

import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler


class Texts(Dataset):
    def __init__(self, num=1500):
        rng = random.Random(6)
        self.lengths = [rng.randint(5, 60) for _ in range(num)]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return torch.full((self.lengths[i],), 1 + i % 19), i % 2


class LengthBatches(Sampler):
    def __init__(self, lengths, batch_size, seed=0):
        self.batch_size = batch_size
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        self.batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
        random.Random(seed).shuffle(self.batches)

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter(self.batches)


def pad(samples):
    texts, labels = zip(*samples, strict=True)
    lengths = [len(text) for text in texts]
    print("batch", len(texts), max(lengths) - min(lengths))
    return pad_sequence(texts, batch_first=True), torch.tensor(labels)


torch.manual_seed(6)
texts = Texts()
batches = LengthBatches(texts.lengths, batch_size=10)
loader = DataLoader(texts, batch_sampler=batches, collate_fn=pad)
embed, head = nn.Embedding(20, 16), nn.Linear(16, 2)
optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters()], lr=0.1)
for _epoch in range(3):
    for text, label in loader:
        loss = nn.functional.cross_entropy(head(embed(text).mean(1)), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
