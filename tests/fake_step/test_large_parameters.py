"""Models whose parameters have no contents."""

import copy
import subprocess
import sys

import pytest
import torch
from batchadvisor.probes.fake_step.large_parameters import LEAST_NUMBERS, LargeParameters
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

WIDE = 256


@pytest.fixture
def large():
    mode = LargeParameters(real_bytes=3 * LEAST_NUMBERS * 4)
    mode.start()
    yield mode
    mode.pause()
    LargeParameters.current = None


def fakes(module):
    return [isinstance(parameter, FakeTensor) for parameter in module.parameters()]


def test_what_a_model_asks_for_beyond_a_limit_is_fake(large):
    layers = [nn.Linear(256, WIDE, bias=False) for _ in range(5)]
    assert [fakes(layer) for layer in layers] == [[False], [False], [False], [True], [True]]
    assert fakes(nn.Linear(8, 8)) == [False, False]
    assert not isinstance(torch.zeros(256, WIDE), FakeTensor)  # no module asks


def test_a_fake_model_trains_without_computing(large):
    model = nn.Sequential(*(nn.Linear(WIDE, WIDE) for _ in range(6)))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        loss = model(torch.randn(4, WIDE)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        assert loss.item() == 1.0
    assert isinstance(loss, FakeTensor)
    assert len(optimizer.state) == 12


def test_real_layers_after_a_fake_one_train_too(large):
    words = nn.Embedding(4 * WIDE, WIDE)  # as of a language model: the first, and the largest
    model = nn.Sequential(words, nn.Linear(WIDE, WIDE), nn.Linear(WIDE, WIDE))
    assert fakes(model) == [True, False, False, False, False]
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        loss = model(torch.zeros(2, 3, dtype=torch.long)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() == 1.0


def test_a_fake_layer_can_be_copied_and_converted(large):
    layers = [nn.Linear(WIDE, WIDE) for _ in range(4)]
    layer = layers[-1]
    assert fakes(layer)[0]
    twin = copy.deepcopy(layer)
    assert twin.weight is not layer.weight
    assert twin.weight.fake_mode is large.fakes
    assert layer.to(torch.bfloat16).weight.dtype is torch.bfloat16
    assert twin.to("cpu").double().weight.dtype is torch.float64
    layer.load_state_dict(
        {key: torch.zeros(value.shape) for key, value in layer.state_dict().items()}
    )


@pytest.mark.slow
def test_nothing_of_it_is_imported_by_a_worker_that_does_not_need_it():
    code = "import sys; from batchadvisor.probes.worker import main; main.import_ahead()\n"
    code += "sys.exit(any('probes.fake_step' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0
