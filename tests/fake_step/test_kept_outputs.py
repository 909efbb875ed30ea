"""Outputs that the script's loop still names in the next step, which is of another size."""

import pytest
import torch
from batchadvisor.probes.fake_step.fake_steps import FakeSteps
from batchadvisor.probes.fake_step.storage_count import StorageCount
from batchadvisor.records import Variant
from torch import nn

from .small_models import drive

SMALL, LARGE = 64, 512


class States(nn.Module):
    """Returns what each layer gave, which is most of what a step takes."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(256, 256) for _ in range(4))

    def forward(self, x):
        states = [x]
        for layer in self.layers:
            states.append(layer(states[-1]).relu())
        return states[-1].mean(), states


class Loop:
    """Names the outputs of the last step until those of the next one are there."""

    def __init__(self, *, keeps):
        torch.manual_seed(0)
        self.model, self.keeps, self.outputs = States(), keeps, None
        self.chosen = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def step(self, batch):
        outputs = self.model(batch)
        if self.keeps:
            self.outputs = outputs
        loss = outputs[0]
        del outputs
        self.chosen.zero_grad()
        loss.backward()
        self.chosen.step()


def fake(steps, loop, size, num_steps):
    """Steps of a size; whether the last one is as the next would be, and its peak."""
    steps.begin(Variant(), size)
    drive(steps, loop.step, torch.ones(size, 256), num_steps)
    return steps.is_as_the_next(size), steps.trial(size).peak_bytes


def real(size):
    loop, count = Loop(keeps=True), StorageCount()
    batch = torch.ones(size, 256)
    count.hold([*loop.model.parameters(), batch])
    with count:
        for _ in range(3):
            count.reset_peak()
            loop.step(batch)
    return count.peak_bytes


def test_they_are_of_the_size_of_the_step_before():
    loop = Loop(keeps=True)
    steps = FakeSteps(loop.model.parameters())
    fake(steps, loop, SMALL, 2)
    first_is_as_the_next, too_low = fake(steps, loop, LARGE, 1)
    second_is_as_the_next, peak = fake(steps, loop, LARGE, 2)
    steps.close()
    assert (first_is_as_the_next, second_is_as_the_next) == (False, True)
    assert too_low < 0.95 * peak
    assert peak == pytest.approx(real(LARGE), rel=0.01)


def test_a_step_is_as_the_next_where_nothing_is_kept():
    loop = Loop(keeps=False)
    steps = FakeSteps(loop.model.parameters())
    fake(steps, loop, SMALL, 2)
    told, _ = fake(steps, loop, LARGE, 1)
    steps.close()
    assert told
