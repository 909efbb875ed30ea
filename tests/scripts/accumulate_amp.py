"""Gradient accumulation over 4 batches, bfloat16 autocast, GradScaler, clipping, and a OneCycleLR
that is sized for exactly len(loader) * epochs / 4 steps and raises when it is stepped further."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

ACCUMULATE = 4
EPOCHS = 6
device = "cuda" if torch.cuda.is_available() else "cpu"


def main():
    torch.manual_seed(3)
    images = torch.randn(1280, 1, 12, 12)
    labels = images.mean((1, 2, 3)).gt(0).long()
    loader = DataLoader(TensorDataset(images, labels), batch_size=16, shuffle=True)

    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 36, 2),
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(device, enabled=device == "cuda")
    total_steps = math.ceil(len(loader) * EPOCHS / ACCUMULATE)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=total_steps)

    batches = 0
    for epoch in range(EPOCHS):
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss / ACCUMULATE).backward()
            batches += 1
            if batches % ACCUMULATE == 0:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad(set_to_none=True)
                scheduler.step()
        print(f"epoch {epoch}: loss {loss.item():.4f} lr {scheduler.get_last_lr()[0]:.2e}")


if __name__ == "__main__":
    main()
