"""Looking for the name of what keeps tensors leaves nothing behind in the script's frames."""

from __future__ import annotations

import gc
import weakref

import torch
from batchadvisor.probes.devices.live_tensors import LiveTensors


def test_a_look_keeps_no_local_of_the_script_alive() -> None:
    kept = []
    look = LiveTensors()
    for _ in range(20):
        activations = torch.ones(100)
        kept.append(torch.ones(3))
    alive = weakref.ref(activations)
    assert look.since(20).holder == "kept"
    del activations
    gc.collect()
    assert alive() is None


def test_a_dict_that_the_script_has_by_locals_stays() -> None:
    rate = 0.1
    settings = locals()
    kept = []
    look = LiveTensors()
    for _ in range(20):
        kept.append(torch.ones(3))  # noqa: PERF401
    assert look.since(20).holder == "kept"
    assert settings["rate"] == rate


def test_losses_that_lie_where_gradients_died_are_new() -> None:
    """New gradients are no losses either: they take the place of others, and have no graph."""
    weights = [torch.ones(3, requires_grad=True) for _ in range(90)]
    for weight in weights:
        weight.grad = torch.ones(3)
    look = LiveTensors()
    gradients = [torch.ones(3) for _ in weights]
    for weight in weights:
        weight.grad = gradients.pop()
    losses = [(weights[0] * number).sum() for number in range(40)]
    kept = look.since(40)
    assert kept.more_tensors == len(losses)
    assert (kept.holder, kept.holder_kind, kept.with_graph) == ("losses", "list", True)
