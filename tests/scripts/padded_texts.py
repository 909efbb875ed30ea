"""Texts padded to the longest of their batch, with an attention mask; two batches make a step.

With `--in-turn` eight lengths come in turn, so that batches of 8, 16, 24, ... are padded alike.
"""

import random
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOCABULARY, PAD = 200, 0
IN_TURN = "--in-turn" in sys.argv


def length_of(i):
    """Deterministic, so that a test can count for itself."""
    if IN_TURN:
        return 4 + 8 * (i % 8)
    return 5 + random.Random(i).randrange(60)


class Texts(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, i):
        words = random.Random(i)
        return [words.randrange(2, VOCABULARY) for _ in range(length_of(i))], i % 2


def collate(samples):
    longest = max(len(ids) for ids, _ in samples)
    return {
        "input_ids": torch.tensor([ids + [PAD] * (longest - len(ids)) for ids, _ in samples]),
        "attention_mask": torch.tensor(
            [[1] * len(ids) + [0] * (longest - len(ids)) for ids, _ in samples]
        ),
        "labels": torch.tensor([label for _, label in samples]),
    }


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 32, padding_idx=PAD)
        self.mix = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, ids, mask):
        weights = mask.unsqueeze(-1).float()
        pooled = (self.embed(ids) * weights).sum(1) / weights.sum(1).clamp(min=1)
        return self.mix(pooled)


if __name__ == "__main__":
    torch.manual_seed(1)
    loader = DataLoader(
        Texts(), batch_size=8, shuffle=not IN_TURN, collate_fn=collate, drop_last=True
    )
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _epoch in range(2):
        for number, batch in enumerate(loader):
            logits = model(batch["input_ids"], batch["attention_mask"])
            loss = nn.functional.cross_entropy(logits, batch["labels"])
            (loss / 2).backward()
            if number % 2:
                optimizer.step()
                optimizer.zero_grad()
