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
