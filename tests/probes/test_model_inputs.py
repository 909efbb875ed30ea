"""What a step trains on, seen in steps of torch: the shapes grow with the batch in every form."""

import functools

import pytest
import torch
from batchadvisor.advisor.measured.following import grows
from batchadvisor.probes.loader.model_inputs import ModelInputs
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_sequence


class Named(nn.Module):
    """Takes its inputs by name alone, as the models of Hugging Face are called."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(9, 6), nn.Linear(6, 3)

    def forward(self, *, input_ids, labels):
        return functional.cross_entropy(self.head(self.table(input_ids).mean(1)), labels)


class Graph:
    """A batch of graphs: how many nodes there are says how many graphs, roughly."""

    def __init__(self, num):
        self.store = {"x": torch.randn(sum(range(3, 3 + num)), 4), "edges": torch.ones(2, 7 * num)}


class OfGraphs(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, graph):
        return self.layer(graph.store["x"]).mean()


class NoInput(nn.Module):
    """All that it needs it holds itself."""

    def __init__(self):
        super().__init__()
        self.x, self.weight = torch.randn(7, 3), nn.Parameter(torch.ones(3))

    def forward(self):
        return (self.x @ self.weight).sum()


def plain(num):
    functional.mse_loss(nn.Linear(5, 2)(torch.randn(num, 5)), torch.zeros(num, 2)).backward()


def time_first(num):
    nn.GRU(5, 4)(torch.randn(7, num, 5))[0].mean().backward()


def flattened(num):
    logits = nn.Linear(5, 3)(torch.randn(num, 7, 5)).view(-1, 3)
    nn.CrossEntropyLoss()(logits, torch.zeros(num * 7, dtype=torch.long)).backward()


def packed(num):
    sequence = pack_sequence([torch.randn(2 + n % 3, 5) for n in range(num)], enforce_sorted=False)
    nn.LSTM(5, 4)(sequence)[0].data.sum().backward()


def by_name(num):
    ids, labels = torch.zeros(num, 4, dtype=torch.long), torch.zeros(num, dtype=torch.long)
    Named()(input_ids=ids, labels=labels).backward()


def graphs(num):
    OfGraphs()(Graph(num)).backward()


def scattered(num):
    nn.DataParallel(nn.Linear(5, 2))(torch.randn(num, 5)).sum().backward()


def cut_inside(num):
    model = nn.Linear(5, 2)
    for part in torch.randn(num, 5).split(4):
        model(part).mean().backward()


def adversaries(num):
    maker, critic = nn.Linear(3, 5), nn.Linear(5, 1)
    critic(maker(torch.randn(num, 3)).detach()).mean().backward()
    critic(maker(torch.randn(num, 3))).mean().backward()


def without_modules(num):
    weight = torch.randn(5, 3, requires_grad=True)
    losses = (torch.randn(num, 5) @ weight).square().mean(0)  # one for each column
    losses.sum().backward()


FORMS = [
    plain, time_first, flattened, packed, by_name, graphs, scattered, cut_inside, adversaries,
    without_modules,
]  # fmt: skip


def seen_in(step, *arguments):
    inputs = ModelInputs()
    step(*arguments)
    inputs.stop()
    return inputs.entered


@pytest.mark.parametrize("step", FORMS)
def test_it_grows_with_the_batch(step):
    for small, large in ((8, 16), (4, 64), (1, 2)):
        assert grows(seen_in(step, small), seen_in(step, large), large / small)
        assert not grows(seen_in(step, small), seen_in(step, small), large / small)


def test_what_is_validated_is_not_trained_on():
    model = nn.Linear(5, 2)
    inputs = ModelInputs()
    with torch.no_grad():
        model(torch.randn(50, 5))
    assert inputs.entered is None
    model(torch.randn(3, 5))
    assert inputs.entered.inputs == ((3, 5),)
    assert inputs.lead == 3
    inputs.forget()
    assert inputs.entered is None
    assert inputs.lead is None
    inputs.stop()


def test_an_evaluation_is_told_from_other_passes_without_gradients():
    """An agent acts without gradients too, and a target network stays in the mode of training."""
    model = nn.Linear(5, 2)
    inputs = ModelInputs()
    model(torch.randn(3, 5))
    model.eval()(torch.randn(3, 5))
    with torch.no_grad():
        model.train()(torch.randn(3, 5))
    assert inputs.evaluated_s == 0.0
    with torch.no_grad():
        model.eval()(torch.randn(3, 5))
    assert inputs.evaluated_s > 0.0
    inputs.stop()


@pytest.mark.filterwarnings("ignore:.*prototype")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_have_no_shape(layout):
    def step():
        inputs = torch.nested.nested_tensor([torch.randn(n, 5) for n in (3, 2)], layout=layout)
        torch.nested.to_padded_tensor(nn.Linear(5, 1)(inputs), 0.0).sum().backward()

    entered = seen_in(step)
    assert entered.inputs == ()
    assert entered.loss[0] == (2, 3, 1)
    assert all(type(length) is int for shape in entered.loss for length in shape)


def test_nothing_is_seen():
    """No tensor goes in, and nothing goes back."""
    assert seen_in(NoInput()) is None


def test_it_leaves_no_trace():
    native = torch.autograd.backward
    inputs = ModelInputs()
    assert torch.autograd.backward is not native
    inputs.stop()
    assert torch.autograd.backward is native
    # Somebody else may have put theirs around ours, which stays below it and looks no more.
    inputs = ModelInputs()
    ours = torch.autograd.backward
    torch.autograd.backward = functools.partial(ours)
    inputs.stop()
    plain(3)
    assert inputs.entered is None
    torch.autograd.backward = native
