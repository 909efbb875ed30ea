"""Sequences of different lengths: an own batch sampler puts similar lengths together, the
collate_fn pads each batch to its longest sequence. The sampler reads `self.batch_size` afresh for
every epoch."""

import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler


class Sequences(Dataset):
    """Tokens 1..19; the label says whether there are more even tokens than odd ones."""

    def __init__(self, n=1500):
        rng = random.Random(6)
        self.items = [
            torch.tensor([rng.randint(1, 19) for _ in range(rng.randint(5, 60))]) for _ in range(n)
        ]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        tokens = self.items[i]
        return tokens, int((tokens % 2 == 0).float().mean() > 0.5)


class LengthBuckets(Sampler):
    def __init__(self, lengths, batch_size, drop_last=False, seed=0):
        self.lengths = lengths
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.rng = random.Random(seed)

    def __len__(self):
        n = len(self.lengths)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)

    def __iter__(self):
        order = sorted(range(len(self.lengths)), key=lambda i: (self.lengths[i], self.rng.random()))
        size = self.batch_size
        batches = [order[i : i + size] for i in range(0, len(order), size)]
        if self.drop_last and len(batches[-1]) < size:
            batches.pop()
        self.rng.shuffle(batches)
        yield from batches


def pad(samples):
    tokens, labels = zip(*samples)
    lengths = torch.tensor([len(t) for t in tokens])
    return pad_sequence(tokens, batch_first=True), lengths, torch.tensor(labels)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16, padding_idx=0)
        self.conv = nn.Conv1d(16, 16, 3, padding=1)
        self.head = nn.Linear(16, 2)

    def forward(self, tokens, lengths):
        x = self.conv(self.embed(tokens).transpose(1, 2)).relu()
        return self.head(x.sum(2) / lengths[:, None])


def main():
    torch.manual_seed(6)
    dataset = Sequences()
    buckets = LengthBuckets([len(t) for t in dataset.items], batch_size=10)
    loader = DataLoader(dataset, batch_sampler=buckets, collate_fn=pad)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(5):
        total = 0.0
        for tokens, lengths, labels in loader:
            loss = nn.functional.cross_entropy(model(tokens, lengths), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
        print(f"epoch {epoch}: {len(loader)} batches, loss {total / len(dataset):.4f}")


if __name__ == "__main__":
    main()
