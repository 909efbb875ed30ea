"""Watched loops on the virtual GPU, whose truth is what the machine itself counted."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from batchadvisor import ProfilingCallback

from ..virtual_gpu.device import Graph
from ..virtual_gpu.torch_cuda import install

MS = 1_000_000
BATCH_SIZE = 32
KERNELS = 10


class Optimizer:
    """Holds one parameter of the virtual GPU; its steps are the loop's own business."""

    def __init__(self):
        parameter = SimpleNamespace(device=torch.device("cuda:0"), numel=lambda: 1000)
        self.defaults = {"lr": 0.1}
        self.param_groups = [{"params": [parameter], "lr": 0.1}]


OPTIMIZER = Optimizer()


def batches(sizes):
    return [torch.empty(size, 1) for size in sizes]


def step(gpu, *, host_ms, device_ms, graph=False):
    """One step: the host queues kernels as it goes, or one graph of them."""
    if graph:
        gpu.clock.pass_ms(host_ms)
        gpu.replay(Graph([device_ms / KERNELS] * KERNELS))
        return
    for _ in range(KERNELS):
        gpu.clock.pass_ms(host_ms / KERNELS)
        gpu.launch(device_ms / KERNELS)


def watched(
    gpu,
    patch,
    folder,
    *,
    epochs,
    item_every=None,
    fetch_ms=0.0,
    each=None,
    optimizer=OPTIMIZER,
    **work,
):
    """Trains on the virtual GPU; returns the callback and the true seconds of a step.

    Args:
        epochs: sizes of the batches of each epoch.
        item_every: steps after which the host reads a number.
        fetch_ms: of each batch.
        each: called after each step with its number.
        optimizer: that the callback is told of.
        work: of each step, see `step`; `device_ms` may be a function of the batch size.
    """
    install(gpu, patch)
    options = {"quiet": True, "profile": False, "scalars": False, "optimizer": optimizer}
    work = {"host_ms": 5.0, "device_ms": 50.0, **work}
    number = 0
    began_ns = None
    with ProfilingCallback(folder, **options) as prof:
        for sizes in epochs:

            def fetched(sizes=sizes):
                for tensor in batches(sizes):
                    gpu.clock.pass_ms(fetch_ms)
                    yield tensor

            for batch in prof.watch(fetched()):
                device_ms = work["device_ms"]
                if callable(device_ms):
                    device_ms = device_ms(len(batch))
                step(gpu, **{**work, "device_ms": device_ms})
                number += 1
                if item_every and number % item_every == 0:
                    gpu.item()
                prof.step()
                if number == 3:  # as many as the callback leaves out
                    began_ns = gpu.default_stream.tail_ns
                if each is not None:
                    each(number)
    if number <= 3:
        return prof, None
    return prof, (gpu.default_stream.tail_ns - began_ns) / (number - 3) / 1e9
