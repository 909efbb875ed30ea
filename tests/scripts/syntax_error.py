"""Python cannot read this file: the for loop has no colon."""

import torch
from torch.utils.data import DataLoader, TensorDataset

x = torch.randn(200, 4)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=10)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for inputs, targets in loader
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
