"""Tensors of a running training, counted by hand."""

import gc

import torch
from batchadvisor.probes.fake_step.live_tensors import line_of_user, live_tensors
from torch import nn

WIDTH, CLASSES = 1013, 211


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        return self.head(x)


def test_a_linear_layer_and_adam():
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    batch = torch.randn(17, WIDTH)
    for _ in range(3):
        optimizer.zero_grad()
        net(batch).sum().backward()
        optimizer.step()
    gc.collect()
    seen = live_tensors("cpu", net.parameters(), step=3)
    layer = 4 * (WIDTH * CLASSES + CLASSES)
    (module,) = (source for source in seen.modules if source.name == "Net > Linear")
    assert module.roles == {
        "parameters": layer,
        "gradients": layer,
        "optimizer's state": 2 * layer + 2 * 4,
    }
    (given,) = (source for source in seen.others if source.name == f"float32 17 x {WIDTH}")
    assert given.roles == {"other tensors": 4 * 17 * WIDTH}
    assert sum(seen.held.values()) == seen.num_bytes
    assert not seen.refused
    assert "autograd" in seen.unavailable["allocated_bytes"]


def test_views_count_once_and_show_their_whole():
    whole = torch.randn(1009, 7)
    parts = [whole[at] for at in range(9)]
    seen = live_tensors("cpu", step=0)
    named = [source for source in seen.others if source.name == "float32 1009 x 7"]
    assert [source.num_bytes for source in named] == [4 * 1009 * 7]
    assert len(parts) == 9


def test_other_devices_are_left_out():
    kept = torch.empty(1000, 1000, device="meta")
    seen = live_tensors("meta", step=0)
    assert seen.held == {}  # they have no memory
    assert kept.numel() == 10**6


def test_the_line_at_which_it_failed():
    def fails():
        return torch.empty(2, 3) @ torch.empty(2, 3)

    try:
        fails()
    except RuntimeError as error:
        caught = error
    first = fails.__code__.co_firstlineno
    assert line_of_user(caught) == f"fake_step/test_live_tensors.py:{first + 1}"
    assert line_of_user(ValueError()) == ""
