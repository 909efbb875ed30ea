"""What lives at the peak of a step, by category, module and line, against counts by hand."""

from pathlib import Path

import pytest
import torch
from batchadvisor.probes.fake_step.origins import Origin
from batchadvisor.probes.fake_step.peak_parts import MAX_POSITIONS, step_timeline
from torch import nn
from torch.nn import functional

from ..end_to_end.driver import line_of
from .small_models import faked

HERE = Path(__file__)
SAMPLES, WIDTH, CLASSES = 64, 1024, 512
LENGTH, DEPTH, WORDS, HIDDEN = 32, 64, 128, 256


def rounded(num_bytes):
    return -(-num_bytes // 512) * 512


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(DEPTH, HIDDEN)
        self.down = nn.Linear(HIDDEN, DEPTH)

    def forward(self, x):
        hidden = self.up(x)
        bent = hidden.relu()
        return x + self.down(bent)


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, DEPTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(DEPTH, WORDS, bias=False)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def trial_of(model, inputs, targets):
    """A step of Adam."""
    optimizer = torch.optim.Adam(model.parameters())

    def step(batch):
        optimizer.zero_grad()
        given, wanted = batch
        loss = functional.cross_entropy(model(given).flatten(0, -2), wanted)
        loss.backward()
        optimizer.step()

    return faked(step, (inputs, targets), optimizer).trial(len(inputs))


def linear():
    inputs, targets = torch.randn(SAMPLES, WIDTH), torch.randint(CLASSES, (SAMPLES,))
    return trial_of(nn.Linear(WIDTH, CLASSES), inputs, targets)


def gpt():
    tokens = torch.randint(WORDS, (SAMPLES, LENGTH))
    return trial_of(Gpt(), tokens, tokens.flatten())


@pytest.mark.parametrize("make", [linear, gpt])
def test_every_way_to_split_the_peak_sums_to_it(make):
    trial = make()
    assert sum(trial.at_peak.values()) == trial.peak_bytes
    for sources in (trial.modules, trial.lines):
        assert sum(source.num_bytes for source in sources) == trial.peak_bytes
        assert [source.name for source in sources].count("") == 1
    line = trial.timeline
    sums = [sum(values) for values in zip(*line.live.values(), strict=True)]
    assert max(sums) == trial.peak_bytes
    at = sums.index(trial.peak_bytes)
    alive = {role: values[at] for role, values in line.live.items() if values[at]}
    assert alive == trial.at_peak
    assert [name for name, _ in line.phases] == ["forward", "backward", "optimizer"]
    assert list(line.positions) == sorted(set(line.positions))
    made_in_step = sum(place.num_bytes for place in trial.places)
    roles = ("activations", "backward", "loss and logits", "optimizer's temporaries")
    assert 0 < made_in_step <= sum(trial.at_peak.get(role, 0) for role in roles)
    assert {place.line.partition(":")[0] for place in trial.places} == {f"fake_step/{HERE.name}"}
    assert list(trial.places) == sorted(trial.places, key=lambda place: -place.num_bytes)


def test_a_linear_layer_and_adam():
    """The peak is in the optimizer: everything of the layer four times, and temporaries."""
    trial = linear()
    layer = rounded(4 * WIDTH * CLASSES) + rounded(4 * CLASSES)
    steps = 2 * 512
    assert trial.at_peak["parameters"] == trial.at_peak["gradients"] == layer
    assert trial.at_peak["optimizer's state"] == pytest.approx(2 * layer + steps, abs=1024)
    assert trial.at_peak["batch"] == trial.input_bytes == 4 * SAMPLES * WIDTH + 8 * SAMPLES
    assert trial.parameter_bytes == trial.gradient_bytes == 4 * (WIDTH * CLASSES + CLASSES)
    assert trial.optimizer_bytes == pytest.approx(2 * trial.parameter_bytes, abs=1024)
    module = next(source for source in trial.modules if source.name == "Linear")
    held = ("parameters", "gradients", "optimizer's state")
    assert module.roles == {role: trial.at_peak[role] for role in module.roles}
    assert set(module.roles) == set(held)


def test_a_small_gpt():
    """The peak is in the backward pass of the last block, with the activations of all."""
    trial = gpt()
    blocks = 3 * sum(rounded(4 * size) for size in (DEPTH * HIDDEN, HIDDEN, HIDDEN * DEPTH, DEPTH))
    parameters = 2 * 4 * WORDS * DEPTH + blocks
    assert trial.at_peak["parameters"] == parameters
    assert trial.at_peak["batch"] == 8 * SAMPLES * LENGTH  # tokens and targets share it
    positions = SAMPLES * LENGTH
    lines = {source.name: source for source in trial.lines}

    def made_at(text):
        number = line_of(HERE, text)
        return lines[f"fake_step/{HERE.name}:{number}"].roles["activations"]

    assert made_at("bent = hidden." + "relu()") == 3 * 4 * positions * HIDDEN
    assert made_at("return x + self." + "down(bent)") == 2 * 4 * positions * DEPTH
    assert made_at("x = self." + "embed(x)") == 4 * positions * DEPTH
    backward = 4 * positions * (DEPTH + 2 * HIDDEN)  # of the last block: its sum, before and after
    assert trial.at_peak["backward"] == backward
    assert "Gpt > Block" in {place.module for place in trial.places}
    modules = {source.name: source for source in trial.modules}
    assert modules["Gpt > Embedding"].roles["parameters"] == 4 * WORDS * DEPTH
    assert modules["Block > Linear"].roles["parameters"] == blocks


def test_a_long_step_keeps_its_peak():
    """Many more requests than points: the highest of neighbours stays."""
    here = Origin("forward", "", "")
    requests, origins = [512], [None]
    for number in range(3000):
        requests += [512 if number != 1777 else 10**9, -(number + 2)]
        origins.append(here)
    line = step_timeline(requests, origins, {})
    assert len(line.positions) <= MAX_POSITIONS + 1
    assert line.num_events == 6000
    assert max(line.live["activations"]) == 10**9
    assert set(line.live["kept from before"]) == {512}
    assert line.phases == (("forward", 1),)


def test_what_a_loss_function_gets_and_makes():
    """Logits that the script keeps, and the logarithms that the loss keeps of them."""
    model = nn.Linear(8, 4096, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    targets = torch.randint(4096, (SAMPLES,))

    def step(batch):
        optimizer.zero_grad()
        logits = model(batch)
        loss = functional.cross_entropy(logits, targets)
        loss.backward()
        optimizer.step()

    trial = faked(step, torch.randn(SAMPLES, 8), optimizer).trial(SAMPLES)
    scores = 4 * SAMPLES * 4096
    assert trial.at_peak["loss and logits"] == pytest.approx(2 * scores, abs=1024)
    assert trial.at_peak.get("activations", 0) <= 1024
