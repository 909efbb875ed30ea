"""A training loop with a loss of one kind."""

import torch
from batchadvisor.probes.loader.batch_size_reader import BatchSizeReader
from batchadvisor.probes.windows.loss_kind import PLAN, REPEATS
from batchadvisor.probes.windows.loss_steps import MAX_STRAYS, LossSteps
from torch import nn
from torch.nn.functional import cross_entropy

SAMPLES = 24


class Loop:
    """A training loop that is given its batches by `LossSteps`.

    Args:
        loss: of the model and a batch of inputs and targets.
    """

    def __init__(self, loss, model=None, *, optimizer=None, **options):
        torch.manual_seed(0)
        self.loss = loss
        self.model = model or nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
        parameters = list(self.model.parameters())
        self.optimizer = optimizer or torch.optim.AdamW(parameters, lr=0.1)
        self.batch = torch.randn(SAMPLES, 6), torch.randint(0, 4, (SAMPLES,))
        self.reader = BatchSizeReader()
        self.reader.learn(self.batch, SAMPLES)
        self.steps = LossSteps(parameters, SAMPLES, **{"time_limit_s": 60.0, **options})

    def fetch(self, size=SAMPLES):
        batch = tuple(tensor[:size] for tensor in self.batch)
        return self.steps.substitute(batch, size, self.reader)

    def backward(self, batch):
        self.loss(self.model, *batch).backward()

    def step(self):
        self.optimizer.zero_grad()
        self.backward(self.fetch())
        self.optimizer.step()

    def run(self):
        """Until it is over."""
        try:
            for _ in range(REPEATS * len(PLAN) + MAX_STRAYS + 2):
                self.step()
                self.steps.boundary()
                if self.steps.over:
                    return self.steps.result()
        finally:
            self.steps.close()
        raise AssertionError("it does not end")


def mean(model, x, y):
    return cross_entropy(model(x), y)


def total(model, x, y):
    return cross_entropy(model(x), y, reduction="sum")
