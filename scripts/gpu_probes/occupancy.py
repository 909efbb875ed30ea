"""Probe: does the occupancy recomputed from a trace agree with the driver's GPM counters?"""

from __future__ import annotations

import argparse
import functools
import gzip
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import Finding, main
from load import gpu_of
from profiling_work import profiled

QUESTION = "Do occupancy and SM activity from a trace agree with the driver's GPM counters?"
GPM_S = 1.5
"""Of steady steps a window."""
MATRIX, VALUES, IMAGES = 4096, 64 * 2**20, 128
REPEATS = 30
WITHIN_PCT = 10.0
"""Points that recomputed occupancy may lie off; nothing in the product fixes them."""
MAX_TRACE_BYTES = 400_000
"""A packed trace that is small enough for the tests' data is kept."""


def probe(finding: Finding, given: argparse.Namespace) -> None:
    from batchadvisor.probes.nvml.sampler import NvmlSampler
    from batchadvisor.probes.trace.summary import summarise

    rows: dict[str, dict[str, Any]] = {}
    with NvmlSampler(gpu_of(given.device)) as sampler:
        for name, make in WORKS.items():
            with finding.attempt(name):
                step = make()
                run_for(step, 0.5)
                sampler.begin(steady_s=0.5)
                run_for(step, GPM_S)
                counters = sampler.end()
                trace = given.folder / f"{name}.pt.trace.json"
                # As steady as the window of the counters: nobody waits between two steps.
                profiled(functools.partial(repeated, step), given.device, trace, wait=False)
                profile = summarise(trace, trace.name)
                rows[name] = row(profile, counters)
                keep_small(trace)
                finding.keep(works=rows)
    judge(finding, rows)


def run_for(step: Callable[[], Any], seconds: float) -> None:
    """Steady steps; the device is waited for at the end only, and now and then."""
    import torch

    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        repeated(step)
        repeated(step)
        torch.cuda.synchronize()


def repeated(step: Callable[[], Any]) -> None:
    """Some steps in a row."""
    for _ in range(REPEATS):
        step()


def row(profile: Any, counters: Any) -> dict[str, Any]:
    """The two sources side by side."""
    occupancy, busy = profile.occupancy_pct, profile.kernel_pct
    return {
        "occupancy_pct": occupancy,
        "kernel_pct": busy,
        "occupancy_times_busy_pct": None
        if occupancy is None or busy is None
        else occupancy * busy / 100,
        "gpm_sm_occupancy_pct": counters.sm_occupancy_pct,
        "estimated_sm_efficiency_pct": profile.sm_efficiency_pct,
        "gpm_sm_active_pct": counters.sm_active_pct,
        "tensor_core_pct": profile.tensor_core_pct,
        "gpm_tensor_active_pct": counters.tensor_active_pct,
        "gpm_dram_active_pct": counters.dram_active_pct,
        "unavailable": {**profile.unavailable, **counters.unavailable},
    }


def keep_small(trace: Path) -> None:
    """Packs a trace; one that is too large for the tests' data is dropped."""
    packed = trace.with_name(trace.name + ".gz")
    with trace.open("rb") as source, gzip.open(packed, "wb", 9) as target:
        shutil.copyfileobj(source, target)
    trace.unlink()
    if packed.stat().st_size > MAX_TRACE_BYTES:
        packed.unlink()


def matrices() -> Callable[[], Any]:
    """Large products in half precision: few blocks an SM, tensor cores."""
    import torch

    x = torch.randn(MATRIX, MATRIX, device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)
    return lambda: torch.mm(x, x, out=y)


def elementwise() -> Callable[[], Any]:
    """One value a thread: full occupancy, memory-bound."""
    import torch

    x = torch.randn(VALUES, device="cuda")
    return lambda: torch.add(x, 1.0, out=x)


def tiny() -> Callable[[], Any]:
    """Kernels of a few blocks, one after the other."""
    import torch

    x = torch.randn(64, 64, device="cuda")
    return lambda: [torch.add(x, 1.0, out=x) for _ in range(20)]


def convolutions() -> Callable[[], Any]:
    """Forward and backward of a few convolutions."""
    import torch
    from torch import nn

    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1)
    ).cuda()
    x = torch.randn(IMAGES, 3, 32, 32, device="cuda")

    def step() -> None:
        model(x).mean().backward()

    return step


WORKS = {
    "matrices": matrices,
    "elementwise": elementwise,
    "tiny": tiny,
    "convolutions": convolutions,
}


def judge(finding: Finding, rows: dict[str, dict[str, Any]]) -> None:
    """Differences in points of percent."""
    parts, worst = [], 0.0
    for name, result in rows.items():
        trace, gpm = result["occupancy_times_busy_pct"], result["gpm_sm_occupancy_pct"]
        if trace is None or gpm is None:
            missing = "the trace" if trace is None else "GPM"
            field = "occupancy_pct" if trace is None else "sm_occupancy_pct"
            why = result["unavailable"].get(field, f"{missing} does not tell")
            finding.lack(f"occupancy of {name}", why)
            continue
        worst = max(worst, abs(trace - gpm))
        parts.append(f"{name} {trace:.0f} against {gpm:.0f} %")
    if not parts:
        return
    finding.answer = f"occupancy by trace against GPM: {', '.join(parts)}."
    finding.assume(
        "probes/trace/occupancy.py: achieved_pct",
        f"within {WITHIN_PCT:g} points of GPM",
        worst <= WITHIN_PCT,
        f"{worst:.0f} points off at most",
    )
    over = []
    for name, result in rows.items():
        trace, gpm = result["estimated_sm_efficiency_pct"], result["gpm_sm_active_pct"]
        if None not in (trace, gpm) and trace < gpm - 5:
            over.append(f"{name} {trace:.0f} against {gpm:.0f}")
    finding.assume(
        "probes/trace: sm_efficiency_pct is an upper bound of SM activity",
        "not more than 5 points below GPM",
        not over,
        f"below GPM: {', '.join(over) or 'none'}",
    )


if __name__ == "__main__":
    sys.exit(main(probe, QUESTION, needs_cuda=True))
