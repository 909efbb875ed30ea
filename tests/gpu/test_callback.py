"""The callback's times on a real GPU against one loop between two synchronisations."""

from __future__ import annotations

import time

import pytest
import torch
from batchadvisor import ProfilingCallback

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU"),
]
BATCH_SIZE = 64
WARMUP, STEPS = 20, 400


def work(size=4096, times=8):
    """A few matrix products, and the same as a CUDA graph."""
    x = torch.randn(size, size, device="cuda")
    y = torch.empty_like(x)

    def step():
        for _ in range(times):
            torch.mm(x, x, out=y)

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    torch.cuda.synchronize()
    return step, graph.replay, y


@pytest.mark.parametrize("graph", [False, True], ids=["kernels", "graphs"])
@pytest.mark.parametrize("item_every", [None, 1, 10, 50])
def test_samples_per_second(tmp_path, item_every, graph):
    kernels, replay, y = work()
    step = replay if graph else kernels
    model = torch.nn.Linear(1, 1).cuda()
    batches = [torch.zeros(BATCH_SIZE, 1)] * (WARMUP + STEPS)
    began = 0.0
    with ProfilingCallback(tmp_path, model=model, profile=False, quiet=True) as prof:
        for number, _ in enumerate(prof.watch(batches)):
            if number == WARMUP:
                torch.cuda.synchronize()
                began = time.perf_counter()
            step()
            if item_every and number % item_every == 0:
                y[0, 0].item()
            prof.step()
        torch.cuda.synchronize()
        truth_s = (time.perf_counter() - began) / STEPS
    (trial,) = prof.record.trials
    assert trial.samples_per_s.median == pytest.approx(BATCH_SIZE / truth_s, rel=0.02)
    assert prof.record.observed.stretches[0].clock == "the device's events"
