"""Probe: are the callback's times right where the host runs ahead of the device?"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from harness import Finding, main, percent

QUESTION = "Are the callback's samples/s right with .item() every 1, 10, 50 steps and CUDA graphs?"
BATCH_SIZE = 64
WARMUP_STEPS = 20
ITEM_EVERY = (None, 1, 10, 50)
MATRIX, PRODUCTS = 4096, 2
"""Rows and columns of a product, and products a step, on a GPU: some milliseconds."""
WITHIN = 0.02
Work = tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any], dict[str, Any]]
"""A step, reading a number from the device, waiting for it, options for the callback."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=400)


def probe(finding: Finding, given: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    for graph in (False, True):
        name = "CUDA graphs" if graph else "kernels"
        if graph and given.device != "cuda":
            finding.lack(name, "no CUDA device")
            continue
        with finding.attempt(name):
            work = cuda_work(graph=graph) if given.device == "cuda" else cpu_work()
            for every in ITEM_EVERY:
                with finding.attempt(f"{name}, item() every {every}"):
                    rows.append({"graph": graph, **measured(work, every, given.steps)})
                finding.keep(rows=rows)
    judge(finding, rows)


def cuda_work(*, graph: bool) -> Work:
    """A few matrix products, or the same as one CUDA graph."""
    import torch

    x = torch.randn(MATRIX, MATRIX, device="cuda")
    y = torch.empty_like(x)

    def kernels() -> None:
        for _ in range(PRODUCTS):
            torch.mm(x, x, out=y)

    for _ in range(3):
        kernels()
    torch.cuda.synchronize()
    step: Callable[[], Any] = kernels
    if graph:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            kernels()
        torch.cuda.synchronize()
        step = captured.replay
    model = torch.nn.Linear(1, 1).cuda()
    return step, y[0, 0].item, torch.cuda.synchronize, {"model": model}


def cpu_work() -> Work:
    """The host is the device; nothing runs ahead."""
    import torch

    x = torch.randn(192, 192)
    model = torch.nn.Linear(1, 1)
    return lambda: torch.mm(x, x), x[0, 0].item, lambda: None, {"model": model}


def measured(work: Work, item_every: int | None, num_steps: int) -> dict[str, Any]:
    """Samples/s by the callback and between two synchronisations of our own."""
    import torch
    from batchadvisor import ProfilingCallback

    step, item, wait, extra = work
    batches = [torch.zeros(BATCH_SIZE, 1)] * (WARMUP_STEPS + num_steps)
    began_s = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        options = {"profile": False, "quiet": True, "scalars": False, **extra}
        with ProfilingCallback(folder, **options) as prof:
            for number, _ in enumerate(prof.watch(batches)):
                if number == WARMUP_STEPS:
                    wait()
                    began_s = time.perf_counter()
                step()
                if item_every and number % item_every == 0:
                    item()
                prof.step()
            wait()
            truth_s = (time.perf_counter() - began_s) / num_steps
        assert prof.record is not None
        (trial,) = prof.record.trials
        stretches = prof.record.observed.stretches if prof.record.observed else ()
    speed = trial.samples_per_s
    row: dict[str, Any] = {
        "item_every": item_every,
        "true_step_s": truth_s,
        "clock": stretches[0].clock if stretches else None,
    }
    if speed is not None:
        row |= {
            "samples_per_s": speed.median,
            "low": speed.low,
            "high": speed.high,
            "ratio": speed.median * truth_s / BATCH_SIZE,
        }
    return row


def judge(finding: Finding, rows: list[dict[str, Any]]) -> None:
    """The largest difference."""
    known = [row for row in rows if "ratio" in row]
    if not known:
        return
    worst = max(known, key=lambda row: abs(row["ratio"] - 1))
    every = f"item() every {worst['item_every']}" if worst["item_every"] else "without item()"
    how = "CUDA graphs" if worst["graph"] else "kernels"
    finding.answer = (
        f"of {len(known)} loops the callback is furthest off with {how}, {every}: "
        f"{percent(worst['ratio'] - 1)}."
    )
    finding.assume(
        "callback/devices.py: EVENT_PERIOD_NS, callback/step_kinds.py: MIN_STRETCH_STEPS",
        "samples/s within 2 %",
        abs(worst["ratio"] - 1) <= WITHIN if finding.device == "cuda" else None,
        f"{percent(worst['ratio'] - 1)} at worst",
    )


if __name__ == "__main__":
    sys.exit(main(probe, QUESTION, options=options))
