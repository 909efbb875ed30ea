"""A declared workload: no data, no loop; `make(batch_size)` returns a function that makes a step."""

import torch
from torch import nn

batch_size = 16
num_samples = 4000

model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def make(batch_size):
    inputs = torch.randn(batch_size, 32)
    labels = torch.randint(0, 4, (batch_size,))

    def step():
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


class Held:
    """The same as an object."""

    batch_size = 12

    def make(self, batch_size):
        self._step = make(batch_size)

    def step(self):
        self._step()


held = Held()


def direct(batch_size):
    make(batch_size)()


def two_sizes(height, width):
    return make(height * width)


def wrong_step(batch_size):
    return lambda inputs: inputs


if __name__ == "__main__":
    raise SystemExit("not meant to be run")
