"""Steps on fake tensors, compared with the storages of real ones."""

import contextlib

import pytest
import torch
from batchadvisor.advisor.fit.step_law import StepLaw, fit_step_law
from batchadvisor.probes.fake_step.fake_step import FakeStep, fake_step
from batchadvisor.probes.fake_step.storage_count import StorageCount
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    def __init__(self, width, to, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, to, 3, stride, 1, bias=False),
            nn.BatchNorm2d(to),
            nn.ReLU(inplace=True),
            nn.Conv2d(to, to, 3, 1, 1, bias=False),
            nn.BatchNorm2d(to),
        )
        self.short = nn.Conv2d(width, to, 1, stride, bias=False)

    def forward(self, x):
        return functional.relu(self.body(x) + self.short(x))


class Gpt(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.embed = nn.Embedding(64, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 128, dropout, "gelu", batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 64)

    def forward(self, x):
        return self.head(self.blocks(self.embed(x))).mean(1)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(16, 32, 2, batch_first=True)
        self.head = nn.Linear(32, 64)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


def images(batch):
    return torch.randn(batch, 3, 16, 16), torch.randint(64, (batch,))


def tokens(batch):
    return torch.randint(64, (batch, 24)), torch.randint(64, (batch,))


def series(batch):
    return torch.randn(batch, 20, 16), torch.randint(64, (batch,))


def resnet():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1),
        Residual(16, 16, 1),
        Residual(16, 32, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 64),
    )


MODELS = {
    "resnet": (resnet, images),
    "gpt": (lambda: Gpt(0.0), tokens),
    "dropout": (lambda: Gpt(0.1), tokens),
    "lstm": (Lstm, series),
}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
}


def made(name, optimizer, autocast):
    torch.manual_seed(0)
    build, batch = MODELS[name]
    model = build()
    chosen = OPTIMIZERS[optimizer](model.parameters())

    def step(given):
        inputs, target = given
        chosen.zero_grad()
        context = torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext()
        with context:
            loss = functional.cross_entropy(model(inputs), target)
        loss.backward()
        loss.item()
        chosen.step()

    return model, chosen, step, batch


def estimated(name, optimizer, autocast, size):
    model, chosen, step, batch = made(name, optimizer, autocast)
    result = fake_step(step, batch(size), [model], [chosen])
    assert isinstance(result, FakeStep), result
    return result


def measured(name, optimizer, autocast, size):
    """The peak of the second real step, by its real storages."""
    model, _, step, batch = made(name, optimizer, autocast)
    given, count = batch(size), StorageCount()
    count.hold([*model.parameters(), *model.buffers(), *given])
    with count:
        for _ in range(2):
            count.reset_peak()
            step(given)
    return count.peak_bytes


@pytest.mark.parametrize("autocast", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_the_law_of_fake_steps_says_what_a_real_step_takes(name, optimizer, autocast):
    was = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(was and name != "lstm")
    try:
        compare(name, optimizer, autocast)
    finally:
        torch._C._set_mkldnn_enabled(was)


def compare(name, optimizer, autocast):
    steps = {size: estimated(name, optimizer, autocast, size) for size in (16, 32, 64)}
    law = fit_step_law(
        {size: each.peak_bytes for size, each in steps.items()}, floor_bytes=steps[64].floor_bytes
    )
    assert isinstance(law, StepLaw), law
    far = estimated(name, optimizer, autocast, 1024).peak_bytes
    assert law.peak_bytes(1024) == pytest.approx(far, rel=0.01)
    real = measured(name, optimizer, autocast, 256)
    assert law.peak_bytes(256) == pytest.approx(real, rel=0.02)


def test_the_training_is_afterwards_what_it_was():
    model, chosen, step, batch = made("resnet", "adamw", False)
    step(batch(4))
    was = {key: value.clone() for key, value in model.state_dict().items()}
    gradients = [parameter.grad for parameter in model.parameters()]
    steps = [state["step"].item() for state in chosen.state.values()]
    assert isinstance(fake_step(step, batch(4), [model], [chosen]), FakeStep)
    assert all(torch.equal(value, was[key]) for key, value in model.state_dict().items())
    assert all(
        p.grad is gradient for p, gradient in zip(model.parameters(), gradients, strict=True)
    )
    assert steps == [state["step"].item() for state in chosen.state.values()]


def test_a_shape_that_depends_on_values_gives_no_number():
    model, chosen, step, batch = made("gpt", "sgd", False)

    def picks(given):
        inputs, target = given
        keep = target > 3
        step((inputs[keep], target[keep]))

    result = fake_step(picks, batch(8), [model], [chosen])
    assert isinstance(result, str)
    assert "does not run on fake tensors" in result


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch has no oneDNN here")
def test_an_operation_of_unknown_memory_gives_no_number():
    model, chosen, step, batch = made("lstm", "sgd", False)
    result = fake_step(step, batch(8), [model], [chosen])
    assert isinstance(result, str)
    assert "nothing says how much memory mkldnn_rnn_layer takes" in result


def test_a_step_without_an_optimizers_step_gives_no_number():
    model, chosen, _, batch = made("gpt", "sgd", False)
    result = fake_step(lambda given: model(given[0]).sum().backward(), batch(8), [model], [chosen])
    assert result == "no optimizer stepped"
