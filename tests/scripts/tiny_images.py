"""A convolutional network on images of one size."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.rand(2000, 1, 12, 12), torch.randint(0, 10, (2000,)))
loader = DataLoader(data, batch_size=16, shuffle=True)
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(800, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _epoch in range(5):
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
