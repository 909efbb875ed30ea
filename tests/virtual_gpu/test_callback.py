"""The callback in loops with planted truths: it says what a bare loop says."""

from __future__ import annotations

import pytest
import torch
from batchadvisor import ProfilingCallback

from ..callback.asynchronous import Optimizer
from .script import Loop
from .test_truths import PLANTED
from .torch_cuda import install

SIZE = 64
NUM_STEPS = 300


@pytest.mark.parametrize("name", PLANTED)
def test_a_watched_loop(monkeypatch, tmp_path, name):
    planted = PLANTED[name]
    gpu = planted.machine()
    install(gpu, monkeypatch)
    loop = Loop(planted.script, gpu)

    def batches():
        for _ in range(NUM_STEPS):
            loop.fetch(SIZE)
            yield torch.empty(SIZE, 1)

    options = {"quiet": True, "profile": False, "scalars": False, "optimizer": Optimizer()}
    with ProfilingCallback(tmp_path, **options) as prof:
        for _ in prof.watch(batches()):
            loop.step(SIZE)
            prof.step()
    (trial,) = prof.record.trials
    truth = planted.truth(SIZE)
    assert trial.step_s.median == pytest.approx(truth.step_s, rel=0.02)
    assert trial.samples_per_s.median == pytest.approx(truth.samples_per_s, rel=0.02)
    wait_s = planted.script.fetch_ms(SIZE) / 1e3
    assert trial.input_wait_s.median == pytest.approx(wait_s, rel=0.02, abs=1e-5)
