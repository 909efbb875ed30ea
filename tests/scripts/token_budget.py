"""Batches bounded by a budget of tokens and by a number of samples, as fairseq cuts them.

The budget bounds nearly all of them: a larger `batch_size` has no effect but on short sequences.
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


class TokenBatches(Sampler):
    def __init__(self, lengths, max_tokens, batch_size):
        self.lengths, self.max_tokens, self.batch_size = lengths, max_tokens, batch_size

    def __iter__(self):
        batch, longest = [], 0
        for i in sorted(range(len(self.lengths)), key=self.lengths.__getitem__, reverse=True):
            widest = max(longest, self.lengths[i])
            full = len(batch) == self.batch_size or widest * (len(batch) + 1) > self.max_tokens
            if batch and full:
                yield batch
                batch, widest = [], self.lengths[i]
            batch.append(i)
            longest = widest
        yield batch


def pad(samples):
    texts, labels = zip(*samples, strict=True)
    return pad_sequence(texts, batch_first=True), torch.tensor(labels)


torch.manual_seed(6)
texts = Texts()
loader = DataLoader(
    texts, batch_sampler=TokenBatches(texts.lengths, max_tokens=300, batch_size=20), collate_fn=pad
)
embed, head = nn.Embedding(20, 16), nn.Linear(16, 2)
optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters()], lr=0.1)
for _epoch in range(3):
    for text, label in loader:
        loss = nn.functional.cross_entropy(head(embed(text).mean(1)), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
