"""Other optimizers, kept gradients and LoRA on fake tensors, beside scripts that have them."""

import pytest
import torch
from batchadvisor.probes.fake_step.fake_steps import FakeSteps
from batchadvisor.probes.fake_step.storage_count import StorageCount
from batchadvisor.records import Variant
from torch import nn
from torch.nn import functional

from .small_models import drive, made, trained


class Looked:
    """Fake steps of one script, in one variant after the other."""

    def __init__(self, name, optimizer="adamw"):
        self.model, self.chosen, self.step, batch = made(name, optimizer, False)
        self.steps, self.batch = FakeSteps(trained(self.chosen)), batch(64)

    def at(self, **variant):
        settled = self.steps.begin(Variant(**variant))
        drive(self.steps, self.step, self.batch, 1 if settled else 2)
        return self.steps.trial(64)

    def close(self):
        self.steps.begin(Variant())
        self.steps.close()


@pytest.fixture
def looked():
    made_here = []

    def make(*words):
        made_here.append(Looked(*words))
        return made_here[-1]

    yield make
    for each in made_here:
        each.close()


def real(name, make, change=lambda model: model.parameters(), zero=True):
    """The peak of a real third step whose optimizer is another."""
    model, _, _, batch = made(name, "sgd", False)
    count, given = StorageCount(), batch(64)
    chosen = make(list(change(model)))
    count.hold([*model.parameters(), *model.buffers(), *given])
    with count:
        for number in range(3):
            count.reset_peak()
            if zero or number == 0:
                chosen.zero_grad()
            functional.cross_entropy(model(given[0]), given[1]).backward()
            chosen.step()
    return count.peak_bytes


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("AdamW", lambda p: torch.optim.AdamW(p, foreach=False)),
        ("AdamW, fused", lambda p: torch.optim.AdamW(p, fused=True)),
        ("Adafactor", lambda p: torch.optim.Adafactor(p, foreach=False)),
        ("SGD with momentum", lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
        ("SGD", lambda p: torch.optim.SGD(p, 0.1)),
    ],
)
def test_another_optimizer_takes_what_it_takes_in_a_script(kind, make, looked):
    taken = real("resnet", make)
    script = looked("resnet")
    before = script.at()
    other = script.at(optimizer=kind)
    assert other.peak_bytes == pytest.approx(taken, rel=0.02)
    assert script.at() == before
    assert before.optimizer_bytes >= 2 * before.parameter_bytes
    if kind == "SGD":
        assert other.optimizer_bytes == 0


def test_a_state_of_8_bits_takes_a_byte_for_each_number_and_moment(looked):
    script = looked("lora")
    model = nn.Linear(256, 256)
    from batchadvisor.probes.fake_step.other_optimizers import AdamW8Bit

    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer = AdamW8Bit(model.parameters())
    optimizer.step()
    held = sum(t.nbytes for state in optimizer.state.values() for t in state.values())
    # A scale of 4 bytes for 256 numbers; the bias is too short for it.
    assert held == 2 * (256 * 256 + 256 * 4) + 2 * 256 * 4
    assert script.at(optimizer="AdamW, 8-bit state").gradient_bytes > 0


def test_an_optimizer_that_is_called_with_a_closure_is_replaced_too(looked):
    script = looked("gpt")

    def step(given):
        def closure():
            script.chosen.zero_grad()
            loss = functional.cross_entropy(script.model(given[0]), given[1])
            loss.backward()
            return loss

        script.chosen.step(closure)

    plain = script.at(optimizer="SGD")
    script.step = step
    assert script.at(optimizer="SGD").peak_bytes == pytest.approx(plain.peak_bytes, rel=0.02)
    assert script.at(optimizer="SGD").optimizer_bytes == 0


def test_later_micro_batches_hold_the_gradients_of_those_before(looked):
    kept = real("gpt", lambda p: torch.optim.AdamW(p, foreach=False), zero=False)
    script = looked("gpt")
    without = script.at().peak_bytes
    accumulated = script.at(accumulates=True).peak_bytes
    assert accumulated > without
    assert accumulated == pytest.approx(kept, rel=0.02)


def test_sparse_gradients_are_not_said_to_accumulate(looked):
    script = looked("gpt")
    (table, *_) = (each for each in script.model.modules() if isinstance(each, nn.Embedding))
    table.sparse = True
    with pytest.raises(ValueError, match="a sparse gradient grows with each batch"):
        script.steps.begin(Variant(accumulates=True))


class Adapted(nn.Module):
    def __init__(self, linear, rank):
        super().__init__()
        self.linear = linear
        self.down = nn.Linear(linear.in_features, rank, bias=False)
        self.up = nn.Linear(rank, linear.out_features, bias=False)

    def forward(self, x):
        return self.linear(x) + self.up(self.down(x)) * 0.25


def adapt(model):
    """As a script does it; only the new layers train."""
    model.requires_grad_(False)
    added = []
    for block in model.blocks.layers:
        for name in ("linear1", "linear2"):
            layer = Adapted(getattr(block, name), 4)
            setattr(block, name, layer)
            added += [layer.down.weight, layer.up.weight]
    return added


@pytest.mark.parametrize("names", [(), ("linear1", "*.linear2")], ids=["blocks", "named"])
def test_lora_takes_what_it_takes_in_a_script_that_has_it(names, looked):
    adapted = real("gpt", lambda p: torch.optim.AdamW(p, foreach=False), change=adapt)
    script = looked("gpt")
    before = script.at()
    trial = script.at(lora_rank=4, lora=names)
    assert script.steps.change == "4 Linear"
    # The feed-forward layers of two blocks are 32 by 128.
    assert trial.parameter_bytes == trial.gradient_bytes == 4 * 4 * (32 + 128) * 4
    assert trial.peak_bytes == pytest.approx(adapted, rel=0.02)
    assert script.at() == before
    assert all(parameter.requires_grad for parameter in script.model.parameters())


@pytest.mark.parametrize(
    ("model", "names", "words"),
    [
        ("gpt", ("q_proj",), "no linear layer is named q_proj; there are head, linear1"),
        ("unet", (), "no linear layer stands in a repeated block"),
    ],
)
def test_lora_of_layers_that_are_not_there_says_which_are(model, names, words, looked):
    with pytest.raises(ValueError, match=words):
        looked(model).steps.begin(Variant(lora_rank=4, lora=names))


@pytest.mark.parametrize("kind", ["AdamW", "AdamW, fused", "Adafactor", "SGD with momentum", "SGD"])
def test_one_step_says_of_another_optimizer_what_two_say(kind, looked):
    """Its state is made by the gradients that the step before has left."""
    script = looked("resnet")
    script.at()
    assert script.steps.begin(Variant(optimizer=kind), 64)  # one step does
    drive(script.steps, script.step, script.batch, 1)
    once = script.steps.trial(64)
    again = script.at(optimizer=kind)
    assert (once.peak_bytes, once.optimizer_bytes) == (again.peak_bytes, again.optimizer_bytes)
    assert once.gradient_bytes == again.gradient_bytes
