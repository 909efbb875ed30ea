"""Rare classes drawn more often with WeightedRandomSampler; batches are dicts made by a collate_fn;
drop_last=True."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler


class Imbalanced(Dataset):
    def __init__(self, n=1990):
        g = torch.Generator().manual_seed(5)
        self.labels = (torch.rand(n, generator=g) < 0.1).long()
        self.features = torch.randn(n, 10, generator=g) + self.labels[:, None] * 0.8

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"id": f"sample-{i}", "features": self.features[i], "label": int(self.labels[i])}


def collate(samples):
    return {
        "ids": [s["id"] for s in samples],
        "features": torch.stack([s["features"] for s in samples]),
        "labels": torch.tensor([s["label"] for s in samples]),
    }


def main():
    torch.manual_seed(5)
    dataset = Imbalanced()
    counts = torch.bincount(dataset.labels).float()
    weights = (1 / counts)[dataset.labels]
    sampler = WeightedRandomSampler(weights, num_samples=len(dataset), replacement=True)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler, collate_fn=collate, drop_last=True)

    model = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(5):
        correct = total = 0
        for batch in loader:
            logits = model(batch["features"])
            loss = nn.functional.cross_entropy(logits, batch["labels"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            correct += (logits.argmax(1) == batch["labels"]).sum().item()
            total += len(batch["ids"])
        print(f"epoch {epoch}: accuracy {correct / total:.3f} of {total}")


if __name__ == "__main__":
    main()
