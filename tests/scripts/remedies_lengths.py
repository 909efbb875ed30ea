"""One text in ten is long, so that most batches are padded to its length."""

import random
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Texts(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, i):
        words = random.Random(i)
        length = 400 if words.random() < 0.1 else 10 + words.randrange(30)
        return [words.randrange(2, 200) for _ in range(length)], i % 2

def collate(samples):
    longest = max(len(ids) for ids, _ in samples)
    ids = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in samples])
    return ids, torch.tensor([label for _, label in samples])

torch.manual_seed(0)
embed = nn.Embedding(200, 64)
mix = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.SGD([*embed.parameters(), *mix.parameters()], lr=1e-3)
loader = DataLoader(Texts(), batch_size=16, shuffle=True, collate_fn=collate)
for epoch in range(100):
    for ids, labels in loader:
        loss = nn.functional.cross_entropy(mix(embed(ids)).mean(1), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
