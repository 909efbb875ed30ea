"""Probe: is a step as fast after a profile as it was before?"""

from __future__ import annotations

import argparse
import statistics
import sys

from harness import Finding, main, percent
from profiling_work import free_running_s, make_step, profiled, step_times

QUESTION = "Is a step as fast after a profiled window as before it?"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=40, help="in each of five blocks")


def probe(finding: Finding, given: argparse.Namespace) -> None:
    step = make_step(given.device)
    free, waited = [], []

    def look() -> None:
        free.append(free_running_s(step, given.device, given.steps))
        waited.append(statistics.median(step_times(step, given.device, given.steps)))
        finding.keep(free_running_step_s=free, waited_step_s=waited)

    look()
    look()  # what this machine's own drift is
    profile = profiled(step, given.device)
    look()
    profiled(step, given.device)
    look()
    finding.keep(profiled_step_s=profile["step_s"])
    drift, once, twice = (later / free[0] - 1 for later in free[1:])
    finding.answer = (
        f"after one profile {percent(once)}, after two {percent(twice)} a step; without a profile "
        f"in between {percent(drift)}."
    )
    from batchadvisor.session.run import GPU_PRECISION

    worst = max(once, twice)
    finding.assume(
        "session/run.py: GPU_PRECISION",
        GPU_PRECISION,
        worst - max(0.0, drift) <= GPU_PRECISION if given.device == "cuda" else None,
        f"after a profile in the same process a step takes {percent(worst)} more",
    )


if __name__ == "__main__":
    sys.exit(main(probe, QUESTION, options=options))
