"""Uses remedies already: workers that persist, bf16 autocast, a fused optimizer, channels_last."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

images = torch.randn(600, 3, 16, 16)
labels = torch.randint(0, 4, (600,))
loader = DataLoader(
    TensorDataset(images, labels), batch_size=16, num_workers=1, persistent_workers=True
)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4)
).to(memory_format=torch.channels_last)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
for epoch in range(50):
    for image, label in loader:
        image = image.contiguous(memory_format=torch.channels_last)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
