"""Probe: is the largest size that `run` finds the largest that fits?"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from harness import HERE, Finding, child, left_s, main, percent, product_run

QUESTION = "Does the largest size of --goal memory fit in a fresh process, and how near is it?"
HUNGRY = str(HERE / "hungry.py")
STEPS = 30
"""That a recommended size must survive in a fresh process."""
MARGIN = 0.05


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--budget", default="30s")


def probe(finding: Finding, given: argparse.Namespace) -> None:
    words = ["--device", "cuda", "--goal", "memory", "--budget", given.budget, HUNGRY]
    said = product_run(words, given.folder / "run", left_s(given))
    record, advice = said["record"], said["advice"]
    chosen = (advice.get("recommended") or {}).get("batch_size")
    trials = [
        {
            "batch_size": trial["batch_size"],
            "outcome": trial["outcome"],
            "detail": trial.get("detail", ""),
            "worker": trial.get("worker"),
            "memory": trial.get("memory"),
        }
        for trial in record["trials"]
    ]
    capacity = (record.get("device") or {}).get("capacity_bytes")
    finding.keep(recommended=chosen, capacity_bytes=capacity, trials=trials)
    if chosen is None:
        finding.lack("the largest size", f"run recommended none: {advice.get('headline')}")
        return
    fresh = child([HUNGRY, "--batch-size", str(chosen), "--steps", str(STEPS)], left_s(given))
    finding.keep(recommended_in_a_fresh_process=fresh)
    refused = [row["batch_size"] for row in trials if row["outcome"] == "out_of_memory"]
    between = [chosen, min(refused, default=chosen + chosen // 8 + 1)]
    bare = child([HUNGRY, "--between", *map(str, between)], left_s(given))
    finding.keep(bare_search=bare)
    judge(finding, chosen, fresh, bare.get("largest"))


def judge(finding: Finding, chosen: int, fresh: dict[str, Any], largest: int | None) -> None:
    """Optimistic if a fresh process is refused; careful if much was left."""
    if "error" in fresh:
        finding.lack("the recommended size in a fresh process", str(fresh["error"]))
        return
    held = fresh["refused"] is None
    words = "ran" if held else f"was refused after {fresh['steps_made']} steps of"
    finding.answer = f"run recommends {chosen}; a fresh process {words} {STEPS} steps of it."
    finding.assume(
        "records/goal.py: Goal.margin",
        MARGIN,
        held and fresh["num_alloc_retries"] == 0,
        f"{chosen} {'fits' if held else 'does not fit'} in a fresh process, "
        f"{fresh['num_alloc_retries']} allocation retries",
    )
    if largest is not None:
        finding.keep(share_of_the_largest=chosen / largest)
        finding.answer += f" The largest that fits is {largest}: {percent(chosen / largest - 1)}."


if __name__ == "__main__":
    sys.exit(main(probe, QUESTION, needs_cuda=True, options=options))
