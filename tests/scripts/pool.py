"""Eight batches are read, sorted by length, then trained on one by one: no accumulation."""

from itertools import islice

import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader


def collate(samples):
    x = pack_sequence([sample for sample, _ in samples], enforce_sorted=False)
    return x, torch.stack([y for _, y in samples])


def pooled(loader, num=8):
    batches = iter(loader)
    while pool := list(islice(batches, num)):
        yield from sorted(pool, key=lambda batch: len(batch[0].batch_sizes))


def main():
    torch.manual_seed(3)
    words = [torch.randn(int(n), 4) for n in torch.randint(3, 12, (1200,))]
    samples = [(word, word.sum().sign().clamp(0)) for word in words]
    loader = DataLoader(samples, batch_size=12, shuffle=True, collate_fn=collate)
    rnn, head = nn.GRU(4, 16), nn.Linear(16, 1)
    optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()])
    for _ in range(10):
        for x, y in pooled(loader):
            loss = nn.functional.binary_cross_entropy_with_logits(head(rnn(x)[1][0])[:, 0], y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
