"""Texts that the collate function splits into words: no sample has a length before."""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

TEXTS = ["word " * (3 + i * 7 % 40) for i in range(900)]


def split(texts):
    rows = [torch.ones(len(text.split()), dtype=torch.long) for text in texts]
    return pad_sequence(rows, batch_first=True), torch.ones(len(texts), dtype=torch.long)


torch.manual_seed(4)
loader = DataLoader(TEXTS, batch_size=8, shuffle=True, collate_fn=split)
embed, head = nn.Embedding(20, 16), nn.Linear(16, 2)
optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters()], lr=0.1)
for _epoch in range(3):
    for text, label in loader:
        loss = nn.functional.cross_entropy(head(embed(text).sum(1)), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
