"""Samples that cannot be read are None, and the collate function leaves them out."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate

torch.manual_seed(0)


class Files(Dataset):
    def __len__(self):
        return 2000

    def __getitem__(self, index):
        if index % 20 == 7:
            return None
        return {"image": torch.randn(20), "label": index % 2, "name": f"{index}.png"}


def collate(samples):
    return default_collate([sample for sample in samples if sample is not None])


loader = DataLoader(Files(), batch_size=16, shuffle=True, collate_fn=collate)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(20):
    for batch in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch["image"]), batch["label"]).backward()
        optimizer.step()
