"""Texts with a heavy tail of lengths, padded to the longest of their batch; scores of all pairs of
tokens are kept, so that memory grows with the square of the length."""

import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __init__(self, num=1200):
        rng = random.Random(8)
        self.lengths = [min(700, 8 + int(24 * rng.paretovariate(1.3))) for _ in range(num)]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return torch.full((self.lengths[i],), 1 + i % 19), i % 2


def pad(samples):
    texts, labels = zip(*samples, strict=True)
    return pad_sequence(texts, batch_first=True), torch.tensor(labels)


class Reader(nn.Module):
    """Two heads that keep their scores; a row of masked positions stays as it is."""

    def __init__(self, width=64, heads=2):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(20, width, padding_idx=0)
        self.mix = nn.Linear(width, 3 * width)
        self.head = nn.Linear(width, 2)

    def forward(self, text):
        x = self.embed(text)
        rows, length, width = x.shape
        query, key, value = (
            part.view(rows, length, self.heads, -1).transpose(1, 2)
            for part in self.mix(x).chunk(3, -1)
        )
        scores = (query @ key.transpose(-1, -2) / 5).softmax(-1)
        mixed = (scores @ value).transpose(1, 2).reshape(rows, length, width)
        return self.head((x + mixed).mean(1))


def main():
    torch.manual_seed(3)
    loader = DataLoader(Texts(), batch_size=8, shuffle=True, collate_fn=pad)
    model = Reader()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _epoch in range(4):
        for text, label in loader:
            loss = nn.functional.cross_entropy(model(text), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
