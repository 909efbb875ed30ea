"""Probe: is the memory of a step on fake tensors that of a step on the device?"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from harness import Finding, child, left_s, main, percent

QUESTION = "Peaks of six models: fake steps and the allocator's replica against the device."
NAMES = ("gpt", "resnet", "gpt with dropout", "gpt checkpointed", "unet", "lora")
SIZES = (64, 256)
OFF = 0.05
"""Of the tensors' peak; and the range of `estimate` reaches up to what the replica reserves."""
ENVIRONMENT = {"NVIDIA_TF32_OVERRIDE": "0"}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--real", help="the child: steps of this model on the device")
    parser.add_argument("--fake", help="the child: steps of this model on fake tensors")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))


def probe(finding: Finding, given: argparse.Namespace) -> None:
    if given.real or given.fake:
        look: Any = real if given.real else fake
        name = given.real or given.fake
        finding.keep(rows={str(size): look(name, given.device, size) for size in given.sizes})
        finding.answer = "looked at"
        return
    if given.device != "cuda":
        finding.lack("the device", "no CUDA device")
        return
    rows = []
    sizes = list(map(str, given.sizes))
    for name in NAMES:
        said = {}
        for kind, device in (("real", "cuda"), ("fake", "cpu")):
            words = [str(Path(__file__)), f"--{kind}", name, "--device", device]
            said[kind] = child(
                [*words, "--limit", "100", "--sizes", *sizes],
                left_s(given),
                environment=ENVIRONMENT,
            )
            if "error" in said[kind] or said[kind].get("errors"):
                finding.lack(
                    f"{name}, {kind}", str(said[kind].get("errors") or said[kind]["error"])
                )
        numbers = {kind: answer.get("numbers", {}).get("rows", {}) for kind, answer in said.items()}
        rows += [
            {
                "model": name,
                "batch_size": int(size),
                "real": numbers["real"][size],
                "fake": numbers["fake"][size],
            }
            for size in sizes
            if size in numbers["real"] and size in numbers["fake"]
        ]
        finding.keep(rows=rows)
    judge(finding, rows)


def real(name: str, device: str, batch_size: int) -> dict[str, int]:
    """What a third step takes on the device, beyond what other sizes left."""
    import torch
    from six_models import steps_of

    torch.cuda.empty_cache()
    _, _, _, step = steps_of(name, device, batch_size)
    for number in range(3):
        if number == 2:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        step()
    torch.cuda.synchronize()
    return {
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
    }


def fake(name: str, _device: str, batch_size: int) -> dict[str, int]:
    """What a second step takes on fake tensors, and what the replica reserves for it."""
    from batchadvisor.features.estimate.fit.forecast import reserved_bytes
    from batchadvisor.probes.fake_step.cuda_forms import use_cuda_forms
    from batchadvisor.probes.fake_step.fake_steps import FakeSteps
    from batchadvisor.records import Variant
    from six_models import steps_of

    use_cuda_forms(on_fakes=True)
    _, optimizer, batch, step = steps_of(name, "cpu", batch_size)
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    steps = FakeSteps(trained, for_gpu=True)
    steps.begin(Variant())
    for number in range(2):
        if number:
            steps.next_step()
        steps.enter(batch)
        try:
            step()
        finally:
            steps.leave()
    peak = steps.trial(batch_size).peak_bytes
    steps.close()
    return {"allocated_bytes": peak, "reserved_bytes": reserved_bytes(steps.requests)}


def judge(finding: Finding, rows: list[dict[str, Any]]) -> None:
    """Every model's fake peak must be near; how much more is reserved is told."""
    if not rows:
        return
    off = {kind: [_off(row, kind) for row in rows] for kind in ("allocated", "reserved")}
    worst = max(range(len(rows)), key=lambda at: abs(off["allocated"][at]))
    where = f"{rows[worst]['model']} at {rows[worst]['batch_size']}"
    finding.answer = (
        f"{len(rows)} sizes: allocated differs by {percent(off['allocated'][worst])} at most "
        f"({where}), reserved by {percent(min(off['reserved']))} to "
        f"{percent(max(off['reserved']))}."
    )
    for at, row in enumerate(rows):
        finding.assume(
            f"probes/fake_step: peak of {row['model']} at {row['batch_size']}",
            OFF,
            abs(off["allocated"][at]) <= OFF,
            f"{percent(off['allocated'][at])} allocated, {percent(off['reserved'][at])} reserved",
        )


def _off(row: dict[str, Any], kind: str) -> float:
    key = f"{kind}_bytes"
    return float(row["fake"][key] / row["real"][key] - 1)


if __name__ == "__main__":
    sys.exit(main(probe, QUESTION, options=options))
