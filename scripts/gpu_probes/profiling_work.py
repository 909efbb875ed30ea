"""A step to be profiled, and the product's own profiler around it."""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import synchronize

SCHEDULE = (0, 1, 3)


def make_step(device: str) -> Callable[[], None]:
    """A training step of many short kernels, which a profiler slows most."""
    import torch
    from torch import nn

    layers = [part for _ in range(20) for part in (nn.Linear(256, 256), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(256, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(64, 256, device=device)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    for _ in range(10):
        step()
    synchronize(device)
    return step


def step_times(step: Callable[[], None], device: str, num: int) -> list[float]:
    """Seconds of each of so many steps, the device waited for after each."""
    times = []
    for _ in range(num):
        start = time.perf_counter()
        step()
        synchronize(device)
        times.append(time.perf_counter() - start)
    return times


def free_running_s(step: Callable[[], None], device: str, num: int, blocks: int = 5) -> float:
    """Seconds a step where nobody waits in between, the median of some blocks."""
    times = []
    for _ in range(blocks):
        synchronize(device)
        start = time.perf_counter()
        for _ in range(num):
            step()
        synchronize(device)
        times.append((time.perf_counter() - start) / num)
    return statistics.median(times)


def profiled(
    step: Callable[[], Any], device: str, keep: Path | None = None, *, wait: bool = True
) -> dict[str, Any]:
    """One profiled window as `run` makes it, each part of it timed.

    Args:
        step: to be profiled.
        device: that it works on.
        keep: where the trace goes; nowhere by default.
        wait: for the device after each step, so that each one's time is its own.
    """
    from batchadvisor.probes.windows.profiling import TraceProfiler

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        path = keep or folder / "one.pt.trace.json"
        profiler = TraceProfiler(path, path.parent, device, SCHEDULE, with_stack=False)
        marks = [time.perf_counter()]
        profiler.start()
        marks.append(time.perf_counter())
        over, steps = False, []
        while not over:
            start = time.perf_counter()
            step()
            if wait:
                synchronize(device)
            steps.append(time.perf_counter() - start)
            over = profiler.step()
        marks.append(time.perf_counter())
        profiler.finish()
        marks.append(time.perf_counter())
        size = path.stat().st_size
    start_s, steps_s, finish_s = (later - before for before, later in itertools.pairwise(marks))
    return {
        "start_s": start_s,
        "steps_s": steps_s,
        "finish_s": finish_s,
        "step_s": steps,
        "trace_bytes": size,
    }
