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


def with_a_loss_module():
    """What a loss is given is made anew in every step."""
    nn.NLLLoss()(nn.LogSoftmax(dim=1)(nn.Linear(4, 4)(ROWS)), torch.zeros(12, dtype=torch.int64))


def with_a_first_state():
    """It is made anew in every step, the samples are not."""
    nn.RNN(4, 3)(ROWS.unsqueeze(0), torch.zeros(1, 12, 3))


def random_with_a_first_state():
    nn.RNN(4, 3)(torch.rand(1, 12, 4), torch.zeros(1, 12, 3))


def filled_beside_a_copy():
    """What is held of the step before has the next step's values, too late."""
    nn.Linear(4, 4)(BUFFER[:])
    BUFFER.copy_(torch.rand(12, 4))


def style_transfer(*, frozen):
    """The picture is trained, and the network that looks at it is not."""
    target, content = torch.rand(1, 4, requires_grad=True), torch.rand(1, 4)
    look = nn.Linear(4, 4).requires_grad_(not frozen)
    optimizer = torch.optim.SGD([target], lr=0.1)

    def step():
        (look(target) - look(content)).square().sum().backward()
        optimizer.step()

    return step


def adversarial():
    """Gradients of a new batch are asked for."""
    nn.Linear(4, 4)(torch.rand(12, 4, requires_grad=True))


def episodes(*lengths, shape=(1, 4)):
    """Steps that enter samples one by one, so many for each."""
    left = iter(lengths)

    def step():
        policy = nn.Linear(4, 2)
        for _ in range(next(left)):
            policy(torch.rand(shape))

    return step


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda: nn.Linear(4, 4)(ROWS[:]), "the same 12 samples, so that one batch is all of them"),
        (with_a_validation, "the same 12 samples"),
        (with_a_loss_module, "the same 12 samples"),
        (with_a_first_state, "so that one batch is all there is"),
        (lambda: nn.Linear(4, 4)(torch.tensor(ROWS.tolist())), "the same 12 samples"),
        (lambda: OnEdges(4, 4)(ROWS, EDGES), "the same graph (12 nodes, 30 edges)"),
        (lambda: nn.Linear(4, 4)(torch.rand(12, 4)), ""),
        (lambda: nn.Linear(4, 4)(ROWS[torch.randperm(12)]), ""),
        (filled_again, ""),
        (filled_beside_a_copy, ""),
        (random_with_a_first_state, ""),
        (lambda: None, ""),
        (style_transfer(frozen=False), "the same sample, so that one batch is all there is"),
        (style_transfer(frozen=True), "the same sample, so that one batch is all there is"),
        (adversarial, ""),
        # Episodes.
        (episodes(9, 12, 31), "item by item (12 to 31 forward passes of one sample for a step)"),
        (episodes(9, 12, 31, shape=(4,)), "so that its length is the batch"),
        (episodes(9, 12, 31, shape=(2, 4)), ""),  # several environments
        (episodes(9, 12, 12), ""),
        (episodes(1, 1, 1), ""),
    ],
)
def test_what_is_repeated(step, words):
    text = said(step)
    assert words in text
    assert bool(text) is bool(words)


@pytest.mark.parametrize(
    ("lengths", "undecided"), [((9, 12, 12), True), ((9, 12, 31), False), ([12] * 9, False)]
)
def test_how_long_episodes_are_waited_for(lengths, undecided):
    """Two of the same length may be chance, many of them are a size."""
    looks, step = RepeatedInputs(), episodes(*lengths)
    for _ in lengths:
        step()
        looks.step_ended()
    looks.stop()
    assert looks.undecided is undecided


def test_one_step_says_nothing():
    assert said(lambda: nn.Linear(4, 4)(ROWS), num_steps=2) == ""
