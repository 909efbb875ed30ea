"""The loader keeps up on average and not in its bursts: what is fetched ahead bridges them.

One data worker takes 5 ms for a batch, and 60 ms more for every eighth: 12.5 ms in the mean. A step
takes 15 ms. Two batches ahead last for 30 ms and four for 60: the loop waits some 30 ms in eight
steps with the first, and with the second not at all.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEP_S, BATCH_S, BURST_S = 0.015, 0.005, 0.060


class Bursts(Dataset):
    row = torch.ones(32)

    def __len__(self):
        return 40_000

    def __getitems__(self, numbers):
        burst = numbers[0] // len(numbers) % 8 == 7
        time.sleep(BATCH_S + (BURST_S if burst else 0))
        return [(self.row, self.row[:1])] * len(numbers)


torch.set_num_threads(1)
model = nn.Linear(32, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = DataLoader(Bursts(), batch_size=8, num_workers=1)
for features, targets in loader:
    time.sleep(STEP_S)
    loss = nn.functional.mse_loss(model(features), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
