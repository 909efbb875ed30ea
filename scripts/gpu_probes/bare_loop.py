"""Probe: do `run` and the callback say what one bare timed loop says?"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from harness import HERE, Finding, child, left_s, main, percent, product_run

QUESTION = "Do run and the callback find the samples/s and the peak memory of a bare timed loop?"
TRAIN = str(HERE / "train.py")
WITHIN = 0.02
"""What samples/s may differ by."""
MEMORY_WITHIN = 0.02
SMALL = ("--width", "64", "--length", "4")
"""On a CPU."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", default="32,128")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a block of the bare loop")
    parser.add_argument("--budget", default="30s", help="of the run")


def probe(finding: Finding, given: argparse.Namespace) -> None:
    sizes = [int(size) for size in given.sizes.split(",")]
    shape = SMALL if given.device == "cpu" else ()
    rows: dict[int, dict[str, Any]] = {size: {} for size in sizes}
    for size in sizes:
        words = [TRAIN, "--batch-size", str(size), "--device", given.device, *shape]
        words += ["--seconds", str(given.seconds)]
        rows[size]["bare"] = child([*words, "--mode", "bare"], left_s(given))
        rows[size]["callback"] = child([*words, "--mode", "callback"], left_s(given))
        finding.keep(sizes=rows)
    with finding.attempt("run"):
        for trial in run_trials(finding, given, shape):
            if trial["batch_size"] in rows and trial["purpose"] == "search":
                rows[trial["batch_size"]]["run"] = of_trial(trial)
    finding.keep(sizes=rows)
    judge(finding, rows)


def run_trials(
    finding: Finding, given: argparse.Namespace, shape: tuple[str, ...]
) -> list[dict[str, Any]]:
    """The trials of `batchadvisor run` over the same script and sizes."""
    words = ["--sizes", given.sizes, "--device", given.device, "--budget", given.budget]
    words += [TRAIN, "--device", given.device, *shape]
    record = product_run(words, given.folder / "run", left_s(given))["record"]
    finding.keep(run_state=record["state"], run_device=record["device"])
    return list(record["trials"])


def of_trial(trial: dict[str, Any]) -> dict[str, Any]:
    """What a trial of the record says."""
    speed, memory = trial.get("samples_per_s") or {}, trial.get("memory") or {}
    return {
        "samples_per_s": speed.get("median"),
        "low": speed.get("low"),
        "high": speed.get("high"),
        "peak_allocated_bytes": memory.get("allocated_bytes"),
        "peak_reserved_bytes": memory.get("reserved_bytes"),
        "doubts": trial.get("doubts", []),
    }


def judge(finding: Finding, rows: dict[int, dict[str, Any]]) -> None:
    """Ratios to the bare loop; the answer."""
    worst: dict[str, list[float]] = {"samples_per_s": [], "peak_reserved_bytes": []}
    parts = []
    for size, row in rows.items():
        bare = row["bare"]
        for source in ("run", "callback"):
            other = row.get(source, {})
            if "error" in other or "error" in bare:
                finding.lack(f"{source} at {size}", str(other.get("error") or bare.get("error")))
                continue
            # The callback's own loop is timed from outside as well: the same steps.
            truth = other.get("outside", bare)
            other["ratios"] = {}
            for name, differences in worst.items():
                mine, true = other.get(name), truth.get(name)
                if mine and true:
                    other["ratios"][name] = mine / true
                    differences.append(mine / true - 1)
            if "samples_per_s" in other["ratios"]:
                difference = percent(other["ratios"]["samples_per_s"] - 1)
                parts.append(f"{source} at {size}: {difference}")
    finding.keep(sizes=rows)
    if not parts:
        return
    speed = max(worst["samples_per_s"], key=abs)
    finding.answer = f"samples/s against the bare loop: {', '.join(parts)}."
    finding.assume(
        "session/run.py: GPU_PRECISION",
        WITHIN,
        abs(speed) <= WITHIN if finding.device == "cuda" else None,
        f"samples/s differ by {percent(speed)} at most",
    )
    if worst["peak_reserved_bytes"]:
        memory = max(worst["peak_reserved_bytes"], key=abs)
        finding.answer += f" Peak reserved memory differs by {percent(memory)} at most."
        finding.assume(
            "probes/devices/torch_devices.py: CudaProbe.read_memory",
            "max_memory_reserved of a window is the script's own peak",
            abs(memory) <= MEMORY_WITHIN,
            f"peak reserved differs by {percent(memory)} at most",
        )
    else:
        finding.lack("peak memory", "torch counts no allocations on a CPU")


if __name__ == "__main__":
    sys.exit(main(probe, QUESTION, options=options))
