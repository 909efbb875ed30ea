"""What steps cost that give their memory back: a script with and without what keeps it.

    python bench/page_faults.py
    python bench/page_faults.py --kind cnn --sizes 64,256,512 --passes 4

Each size runs the script by itself, without batchadvisor: in its usual environment and under the
variables that the finding `memory.page_faults` names, in turn. Steps and minor page faults
(getrusage) are counted from a second after the first step on.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import runpy
import statistics
import subprocess
import sys
import time
from typing import Any

from batchadvisor.advisor.measured.page_faults import KEEPS_MEMORY
from common import HERE, RESULTS, Results, header, say, table
from torch.optim.optimizer import register_optimizer_step_post_hook

TRAINING = HERE / "planted" / "training.py"
START_S = 1.0


def count(arguments: list[str], seconds: float) -> None:
    """Runs the script in this process for a while and prints its steps and faults each second."""
    begun: list[float] = []
    first: list[tuple[float, int]] = []
    num = 0

    def stepped(*_: Any) -> None:
        nonlocal num
        now, faults = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        if not begun:
            begun.append(now)
        if now - begun[0] < START_S:
            return
        if not first:
            first.append((now, faults))
            return
        num += 1
        if now - first[0][0] >= seconds:
            per_s, per_step = num / (now - first[0][0]), (faults - first[0][1]) / num
            print(json.dumps({"steps_per_s": per_s, "faults": per_step}), flush=True)
            os._exit(0)

    register_optimizer_step_post_hook(stepped)
    sys.argv = [str(TRAINING), *arguments]
    runpy.run_path(str(TRAINING), run_name="__main__")


def measured(kind: str, size: int, seconds: float, variables: dict[str, str]) -> dict[str, float]:
    """One process of the script: samples per second, faults of a step."""
    words = ["--kind", kind, "--batch-size", str(size)]
    done = subprocess.run(
        [sys.executable, __file__, "--count", str(seconds), *words],
        env={**os.environ, **variables}, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    told = json.loads(done.stdout.splitlines()[-1])
    return {"samples_per_s": told["steps_per_s"] * size, "faults": told["faults"]}


def report(data: dict[str, Any]) -> str:
    """The printed table."""
    rows = []
    for size, each in data["sizes"].items():
        rate = {
            name: statistics.median(one["samples_per_s"] for one in each[name]) for name in each
        }
        faults = {name: statistics.median(one["faults"] for one in each[name]) for name in each}
        pairs = zip(each["kept"], each["usual"], strict=True)
        ratios = [kept["samples_per_s"] / usual["samples_per_s"] for kept, usual in pairs]
        rows.append(
            (size, f"{rate['usual']:.4g}", f"{faults['usual']:,.0f}", f"{rate['kept']:.4g}",
             f"{faults['kept']:,.0f}",
             f"x{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
        )  # fmt: skip
    lines = header(data, "page faults of steps on a CPU, samples/s")
    columns = ("size", "usual", "faults a step", "memory kept", "faults a step", "ratio")
    lines += [f"kind {data['kind']}", table(columns, rows)]
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    if sys.argv[1:2] == ["--count"]:
        count(sys.argv[3:], float(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", default="cnn", help="of planted/training.py (%(default)s)")
    parser.add_argument("--sizes", default="16,64,128,256,512", help="(%(default)s)")
    parser.add_argument("--passes", type=int, default=4, help="(%(default)s)")
    parser.add_argument("--seconds", type=float, default=2.5, help="of a process (%(default)s)")
    options = parser.parse_args()
    results = Results(RESULTS, "page_faults")
    results.data["kind"] = options.kind
    sizes = results.data.setdefault("sizes", {})
    for _ in range(options.passes):
        for size in map(int, options.sizes.split(",")):
            row = sizes.setdefault(str(size), {"usual": [], "kept": []})
            for name, variables in (("usual", {}), ("kept", KEEPS_MEMORY)):
                row[name].append(measured(options.kind, size, options.seconds, variables))
            results.save()
        say("a pass is over")
    results.data["state"] = "finished"
    results.finish(report(results.data))


if __name__ == "__main__":
    main()
