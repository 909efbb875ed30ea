"""Full-batch training, told by the tensors that enter the model."""

import pytest
import torch
from batchadvisor.probes.loader.repeated_inputs import RepeatedInputs
from torch import nn

ROWS = torch.rand(12, 4)
EDGES = torch.randint(12, (2, 30))
BUFFER = torch.rand(12, 4)


class OnEdges(nn.Linear):
    def forward(self, rows, edges):
        return super().forward(rows[edges[0]])


def said(step, num_steps=3):
    looks = RepeatedInputs()
    try:
        for _ in range(num_steps):
            step()
            looks.step_ended()
        return looks.said()
    finally:
        looks.stop()


def filled_again():
    BUFFER.copy_(torch.rand(12, 4))
    nn.Linear(4, 4)(BUFFER)


def with_a_validation():
    with torch.no_grad():
        nn.Linear(4, 4)(torch.rand(5, 4))
    nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))(ROWS)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda: nn.Linear(4, 4)(ROWS[:]), "the same 12 samples, so that one batch is all of them"),
        (with_a_validation, "the same 12 samples"),
        (lambda: OnEdges(4, 4)(ROWS, EDGES), "the same graph (12 nodes, 30 edges)"),
        (lambda: nn.Linear(4, 4)(torch.rand(12, 4)), ""),
        (lambda: nn.Linear(4, 4)(ROWS[torch.randperm(12)]), ""),
        (filled_again, ""),
        (lambda: None, ""),
    ],
)
def test_what_is_repeated(step, words):
    text = said(step)
    assert words in text
    assert bool(text) is bool(words)


def test_one_step_says_nothing():
    assert said(lambda: nn.Linear(4, 4)(ROWS), num_steps=2) == ""
