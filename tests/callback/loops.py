"""A small training with accumulation and a short last batch, with and without the callback."""

from __future__ import annotations

import torch
from batchadvisor import ProfilingCallback
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

NUM_SAMPLES = 100
BATCH_SIZE = 8
ACCUMULATE = 2
EPOCHS = 3
BATCHES = -(-NUM_SAMPLES // BATCH_SIZE)  # 13, the last one of 4
STEPS = -(-BATCHES // ACCUMULATE)  # 7, the last one of a single micro-batch
TOTAL_STEPS = STEPS * EPOCHS


def data():
    """The loader; shuffled by torch's own generator, so that a stolen number would show."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(NUM_SAMPLES, 10, generator=generator)
    y = (x[:, 0] > 0).long()
    return DataLoader(TensorDataset(x, y), batch_size=BATCH_SIZE, shuffle=True)


def model():
    return nn.Sequential(
        nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2)
    )


def train(prof=None, *, epochs=EPOCHS, each=None, loader=None):
    """Trains; returns the losses and the weights.

    Args:
        prof: the callback, entered already.
        each: called with the number of each micro-batch before its backward pass.
    """
    torch.manual_seed(0)
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    loader = data() if loader is None else loader
    losses, number = [], 0
    for _ in range(epochs):
        optimizer.zero_grad()
        for place, (x, y) in enumerate(prof.watch(loader) if prof else loader):
            loss = nn.functional.cross_entropy(net(x), y)
            number += 1
            if each is not None:
                each(number)
            loss.backward()
            losses.append(loss.item())
            if (place + 1) % ACCUMULATE == 0 or place + 1 == len(loader):
                optimizer.step()
                optimizer.zero_grad()
                if prof:
                    prof.step()
    return losses, [tensor.detach().clone() for tensor in net.state_dict().values()]


def watched(folder, **options):
    """The same under the callback; returns losses, weights and the callback."""
    each = options.pop("each", None)
    epochs = options.pop("epochs", EPOCHS)
    with ProfilingCallback(folder, **options) as prof:
        losses, weights = train(prof, epochs=epochs, each=each)
    return losses, weights, prof
