"""Texts of very different lengths, padded to the longest of their batch; one in fifty is long."""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __len__(self):
        return 2000

    def __getitem__(self, i):
        length = 400 if i % 50 == 7 else 10 + i % 13
        return torch.full((length,), i % 7), i % 2


def collate(samples):
    texts, labels = zip(*samples, strict=True)
    return pad_sequence(texts, batch_first=True), torch.tensor(labels)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(8, 64)
        self.mix = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))

    def forward(self, text):
        print("length", text.shape[1])
        return self.mix(self.embed(text)).mean(1)


torch.manual_seed(3)
loader = DataLoader(Texts(), batch_size=4, shuffle=True, collate_fn=collate)
model = Reader()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _epoch in range(3):
    for text, label in loader:
        loss = nn.functional.cross_entropy(model(text), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
