"""Texts with a heavy tail of lengths, batched in one of five ways; prints each epoch's pace.

python texts.py padded --batch-size 8
python texts.py budget --max-tokens 1024 --epochs 1
"""

import argparse
import random
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler


class Texts(Dataset):
    def __init__(self, num=800):
        rng = random.Random(8)
        self.lengths = [min(300, 8 + int(20 * rng.paretovariate(1.3))) for _ in range(num)]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return torch.full((self.lengths[i],), 1 + i % 19), i % 2


class Stream(IterableDataset):
    def __init__(self):
        self.texts = Texts()

    def __iter__(self):
        return (self.texts[i] for i in range(len(self.texts)))


class Grouped(Sampler):
    """Neighbours in length, in shuffled batches."""

    def __init__(self, lengths, batch_size):
        self.lengths, self.batch_size = lengths, batch_size

    def __iter__(self):
        order = sorted(range(len(self.lengths)), key=self.lengths.__getitem__)
        size = self.batch_size
        batches = [order[at : at + size] for at in range(0, len(order), size)]
        random.Random(1).shuffle(batches)
        return iter(batches)

    def __len__(self):
        return (len(self.lengths) + self.batch_size - 1) // self.batch_size


class Budget(Sampler):
    """Batches of up to so many places for tokens, in shuffled order."""

    def __init__(self, lengths, max_tokens):
        self.lengths, self.max_tokens = lengths, max_tokens

    def __iter__(self):
        batches, batch = [], []
        for i in sorted(range(len(self.lengths)), key=self.lengths.__getitem__):
            if batch and self.lengths[i] * (len(batch) + 1) > self.max_tokens:
                batches.append(batch)
                batch = []
            batch.append(i)
        batches.append(batch)
        random.Random(1).shuffle(batches)
        return iter(batches)


def pad(samples):
    texts, labels = zip(*samples, strict=True)
    padded = pad_sequence(texts, batch_first=True)
    return {
        "input_ids": padded,
        "attention_mask": padded.ne(0).long(),
        "labels": torch.tensor(labels),
    }


def pack(samples):
    texts, labels = zip(*samples, strict=True)
    places = torch.cat([torch.arange(len(text)) for text in texts])
    return {
        "input_ids": torch.cat(texts)[None],
        "position_ids": places[None],
        "labels": torch.tensor(labels),
    }


class Reader(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(20, width)
        self.layers = nn.Sequential(*[nn.Linear(width, width) for _ in range(4)])
        self.head = nn.Linear(width, 2)

    def forward(self, batch):
        x = self.layers(self.embed(batch["input_ids"])).relu()
        if "attention_mask" in batch:
            mask = batch["attention_mask"][..., None]
            scores = (x @ x.transpose(-1, -2) / 8).softmax(-1)
            return self.head(((scores @ x) * mask).sum(1) / mask.sum(1))
        bounds = (batch["position_ids"][0] == 0).nonzero().reshape(-1).tolist()
        texts = x[0].split([b - a for a, b in zip(bounds, [*bounds[1:], x.shape[1]], strict=True)])
        return self.head(torch.stack([text.mean(0) for text in texts]))


parser = argparse.ArgumentParser()
parser.add_argument("kind", choices=("padded", "grouped", "budget", "packed", "stream"))
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--max-tokens", type=int, default=512)
parser.add_argument("--epochs", type=int, default=1000)
args = parser.parse_args()
torch.manual_seed(3)
torch.set_num_threads(1)
texts = Texts()
if args.kind == "budget":
    batches = Budget(texts.lengths, max_tokens=args.max_tokens)
    loader = DataLoader(texts, batch_sampler=batches, collate_fn=pad)
elif args.kind == "grouped":
    batches = Grouped(texts.lengths, batch_size=args.batch_size)
    loader = DataLoader(texts, batch_sampler=batches, collate_fn=pad)
elif args.kind == "stream":
    loader = DataLoader(Stream(), batch_size=args.batch_size, collate_fn=pad)
else:
    collate = pack if args.kind == "packed" else pad
    loader = DataLoader(texts, batch_size=args.batch_size, shuffle=True, collate_fn=collate)
model = Reader()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _epoch in range(args.epochs):
    began, cpu = time.perf_counter(), time.process_time()
    for batch in loader:
        loss = nn.functional.cross_entropy(model(batch), batch["labels"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    wall, used = time.perf_counter() - began, time.process_time() - cpu
    print(
        f"epoch {sum(texts.lengths) / wall:.0f} {sum(texts.lengths) / used:.0f} tokens/s",
        flush=True,
    )
