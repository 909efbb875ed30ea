"""Each step takes 48 MiB and frees them: more than glibc keeps of itself."""

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)  # two that wait for each other take seconds beside other programs
loader = DataLoader(TensorDataset(torch.randn(4096, 64)), batch_size=8)
model = torch.nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(1000):
    for (x,) in loader:
        optimizer.zero_grad()
        held = torch.zeros(12 << 20)
        (model(x).mean() + held[0]).backward()
        optimizer.step()
