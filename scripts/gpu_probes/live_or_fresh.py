"""Probe: is a size as fast after other sizes in one process as in a process of its own?"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import Finding, child, left_s, main, percent, synchronize

QUESTION = "Is a size as fast, and its memory the same, after other sizes in one live process?"
CASES = ("plain", "cudnn.benchmark", "torch.compile", "torch.compile with CUDA graphs")
SLOW_CASES = CASES[2:]
BLOCKS = 5
BLOCK_S = 0.3
WARMUP_STEPS = 8
WIDTHS = {"cuda": 128, "cpu": 8}
"""Channels of the network."""
SIDE = 64
"""Of its images, in pixels."""
WITHIN = 0.03


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", default="32,96", help="in the live process; the last one counts")
    parser.add_argument("--case", choices=CASES, help="the child: times the sizes in turn")
    parser.add_argument("--only", default=",".join(CASES), help="cases by commas")


def probe(finding: Finding, given: argparse.Namespace) -> None:
    if given.case:
        sizes = [int(size) for size in given.sizes.split(",")]
        finding.keep(rows=timed(given.case, sizes, given.device))
        finding.answer = "timed"
        return
    cases: dict[str, dict[str, Any]] = {}
    names = given.only.split(",")
    to_come = 2 * len(names)
    for case in names:
        cases[case] = {}
        for name, sizes in (("live", given.sizes), ("fresh", given.sizes.split(",")[-1])):
            # A compiler that hangs must not take the time of the cases after it.
            limit_s = min(left_s(given), 2 * left_s(given) / to_come)
            to_come -= 1
            words = [str(Path(__file__)), "--case", case, "--sizes", sizes]
            words += ["--device", given.device]
            said = child(words, limit_s)
            if "error" in said or said["errors"]:
                text = said.get("error") or said["errors"][0]["text"]
                finding.lack(f"{case}, {name}", str(text)[:600])
                continue
            cases[case][name] = said["numbers"]["rows"]
            finding.keep(cases=cases)
    judge(finding, cases)


def timed(case: str, sizes: list[int], device: str) -> list[dict[str, Any]]:
    """Step time and peak memory of each size, one after the other in this process."""
    import torch

    if case == "cudnn.benchmark":
        torch.backends.cudnn.benchmark = True
    step = make_step(case, device)
    rows = []
    for size in sizes:
        x = torch.randn(size, 3, SIDE, SIDE, device=device)
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        for _ in range(WARMUP_STEPS):
            step(x)
        synchronize(device)
        warm_s = time.perf_counter() - start
        row: dict[str, Any] = {"batch_size": size, "warmup_s": warm_s, **blocks(step, x, device)}
        if device == "cuda":
            row["peak_allocated_bytes"] = torch.cuda.max_memory_allocated()
            row["peak_reserved_bytes"] = torch.cuda.max_memory_reserved()
        rows.append(row)
    return rows


def blocks(step: Callable[[Any], None], x: Any, device: str) -> dict[str, Any]:
    """Seconds a step in some blocks between two synchronisations each."""
    start = time.perf_counter()
    step(x)
    synchronize(device)
    num = max(3, int(BLOCK_S / max(time.perf_counter() - start, 1e-5)))
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(num):
            step(x)
        synchronize(device)
        times.append((time.perf_counter() - start) / num)
    return {"step_s": statistics.median(times), "blocks_step_s": times, "steps_a_block": num}


def make_step(case: str, device: str) -> Callable[[Any], None]:
    """Training steps of a small convolutional network."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    width = WIDTHS[device]
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
    for _ in range(2):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    model: Any = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    if case in SLOW_CASES:
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "4")
        mode = "reduce-overhead" if case.endswith("graphs") else "default"
        model = torch.compile(model, mode=mode)

    def step(x: Any) -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def judge(finding: Finding, cases: dict[str, dict[str, Any]]) -> None:
    """The last size of the live process against the fresh one."""
    parts = []
    for case, times in cases.items():
        if len(times) < 2:
            continue
        live, fresh = times["live"][-1], times["fresh"][-1]
        slower = live["step_s"] / fresh["step_s"] - 1
        text = f"{case}: live {percent(slower)} a step"
        if "peak_reserved_bytes" in live:
            more = live["peak_reserved_bytes"] / fresh["peak_reserved_bytes"] - 1
            text += f", {percent(more)} reserved"
        parts.append(text)
        finding.assume(
            f"advisor/search/confirmation.py: finalists run again in a fresh process ({case})",
            f"within {100 * WITHIN:g} % the search needs no fresh process",
            abs(slower) <= WITHIN if finding.device == "cuda" else None,
            text,
        )
    if parts:
        finding.answer = "; ".join(parts) + "."


if __name__ == "__main__":
    sys.exit(main(probe, QUESTION, options=options))
