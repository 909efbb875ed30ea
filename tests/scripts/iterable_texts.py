"""A stream of texts of different lengths; some samples are empty, one in a hundred is the longest."""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        for i in range(first, 3000, step):
            length = 0 if i % 40 == 3 else 64 if i % 100 == 7 else 5 + i * 7 % 30
            yield torch.full((length,), 1 + i % 19), i % 2


def pad(samples):
    texts, labels = zip(*samples, strict=True)
    return pad_sequence(texts, batch_first=True), torch.tensor(labels)


torch.manual_seed(4)
loader = DataLoader(Stream(), batch_size=8, num_workers=2, collate_fn=pad)
embed, head = nn.Embedding(20, 16), nn.Linear(16, 2)
optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters()], lr=0.1)
for _epoch in range(3):
    for text, label in loader:
        loss = nn.functional.cross_entropy(head(embed(text).sum(1)), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
