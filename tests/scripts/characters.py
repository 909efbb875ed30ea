"""A language model on characters: blocks of one length, input and target, nothing padded."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BLOCK, VOCABULARY = 32, 40


class Blocks(Dataset):
    def __init__(self):
        self.text = torch.randint(0, VOCABULARY, (6000,), generator=torch.Generator().manual_seed(2))

    def __len__(self):
        return len(self.text) - BLOCK - 1

    def __getitem__(self, i):
        return self.text[i : i + BLOCK], self.text[i + 1 : i + BLOCK + 1]


torch.manual_seed(1)
loader = DataLoader(Blocks(), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Embedding(VOCABULARY, 32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 40))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _epoch in range(3):
    for text, target in loader:
        loss = nn.functional.cross_entropy(model(text).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
