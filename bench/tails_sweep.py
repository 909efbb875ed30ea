"""How long the engine of tails takes for a sweep of 4,096 batch sizes.

    python bench/tails_sweep.py [--repeats 20] [--save]

The goal is under 50 ms for each setup. Best and median of the repeats, one thread.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from datetime import datetime, timezone

from batchadvisor.advisor.tails.sweeps import sweep
from batchadvisor.cli.tails import SETUPS
from batchadvisor.records import ModelFacts, Pipeline
from common import RESULTS, environment

SIZES = range(1, 4097)
GOAL_S = 0.050


def pipeline_of(setup: str) -> Pipeline:
    """ImageNet on eight ranks, with everything known that asks for more rules."""
    single = ("dataloader", "keras-tensorflow", "keras-jax", "keras-torch", "multi-worker-mirrored")
    ranks = 1 if setup in single else 8
    return Pipeline(
        num_samples=1_281_167,
        batch_size=256,
        setup=setup,  # type: ignore[arg-type]
        num_ranks=ranks,
        micro_batches=4,
        model=ModelFacts(batch_norm=53, batch_norm_values=49, optimizer="SGD", compiled="default"),
    )


def times_of(setup: str, repeats: int) -> list[float]:
    pipeline = pipeline_of(setup)
    times_s = []
    for _ in range(repeats):
        start = time.perf_counter()
        rows = sweep(pipeline, SIZES)
        times_s.append(time.perf_counter() - start)
        assert len(rows) == len(SIZES)
    return times_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--save", action="store_true", help="write bench/results/tails_sweep.json")
    options = parser.parse_args()
    rows = {}
    print(f"{len(SIZES)} sizes; best and median of {options.repeats}, ms (goal {GOAL_S * 1e3:.0f})")
    for setup in SETUPS:
        times_s = times_of(setup, options.repeats)
        rows[setup] = {"best_s": min(times_s), "median_s": statistics.median(times_s)}
        best, median = min(times_s) * 1e3, statistics.median(times_s) * 1e3
        print(f"  {setup:24}{best:7.1f}{median:7.1f}")
    worst = max(row["median_s"] for row in rows.values())
    print(
        f"slowest median: {worst * 1e3:.1f} ms, {'within' if worst < GOAL_S else 'above'} the goal"
    )
    if options.save:
        path = RESULTS / "tails_sweep.json"
        data = {**environment(), "at": datetime.now(timezone.utc).isoformat(), "setups": rows}
        path.write_text(json.dumps(data, indent=1) + "\n")
        print(f"Wrote {path}")


if __name__ == "__main__":
    main()
