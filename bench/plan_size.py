"""How long a plan takes over many GPUs of several types.

    python bench/plan_size.py --gpus 10000 --types 8

The records are made by formula: types whose steps have unlike fixed parts and slopes, so that no
two are alike, with sizes that ran out of memory, so that large parts are accumulated. Timed is
`plan_cluster`: all ways to divide a step, the choice of types and the forecast; and the command as
typed, with the start of Python and the reading of the records. Global batches from one sample a
GPU to 4,000.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from batchadvisor.features.plan.split.cluster import plan_cluster
from batchadvisor.features.plan.split.interconnects import interconnect
from batchadvisor.features.plan.split.links import estimated_link
from batchadvisor.probes.devices import host

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
sys.path.insert(0, str(HERE.parent))

from tests import plans  # noqa: E402  of the clone

EACH = (1, 8, 64, 512, 4000)
"""Samples a GPU, on average."""
REPEATS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, default=10_000)
    parser.add_argument("--types", type=int, default=8)
    options = parser.parse_args()
    names = [f"GPU {place}" for place in range(options.types)]
    count = options.gpus // options.types
    records = {
        name: plans.gpu_record(
            f"NVIDIA {name}",
            0.004 + 0.003 * place,
            0.0002 * 1.6**place,
            watts=300.0,
            fails=(300,),
            discovery=plans.discovery_of(num_samples=100_000_000),
        )
        for place, name in enumerate(names)
    }
    probed = [
        plans.probed(name, count, price=1.0 + place, record=records[name])
        for place, name in enumerate(names)
    ]
    link = estimated_link(interconnect("100GbE"), "100GbE", 25_000_000, 4)
    rows = []
    for each in EACH:
        total = each * count * options.types
        seconds = []
        for _ in range(REPEATS):
            start_s = time.perf_counter()
            plan = plan_cluster(probed, global_batch=total, link=link)
            seconds.append(time.perf_counter() - start_s)
        rows.append(
            {
                "global_batch": total,
                "seconds": seconds,
                "types_used": len({share.name for share in plan.options[0].shares}),
                "options": len(plan.options),
            }
        )
        print(_line(rows[-1]), flush=True)
    command_s, help_s = _command(records, count)
    print(_command_line(command_s, help_s), flush=True)
    _save(options, rows, command_s, help_s)


def _command(records: dict[str, Any], count: int) -> tuple[list[float], list[float]]:
    """Seconds of the command, from its start to its end; and of `plan --help`, in turn."""
    with tempfile.TemporaryDirectory(prefix="plan-size-") as name:
        words = [sys.executable, "-m", "batchadvisor", "plan"]
        for number, record in enumerate(records.values()):
            folder = plans.write(Path(name) / f"type{number}", record)
            words += [str(folder), "--count", f"type{number}={count}"]
        seconds: tuple[list[float], list[float]] = [], []
        for _ in range(REPEATS):
            for kind, typed in enumerate((words, [*words[:4], "--help"])):
                start_s = time.perf_counter()
                subprocess.run(typed, check=True, stdout=subprocess.DEVNULL)
                seconds[kind].append(time.perf_counter() - start_s)
    return seconds


def _command_line(command_s: list[float], help_s: list[float]) -> str:
    return (
        f"the command as typed: {median(command_s):.2f} s ({min(command_s):.2f} to "
        f"{max(command_s):.2f}); `plan --help` in turn: {median(help_s):.2f} s"
    )


def _line(row: dict[str, Any]) -> str:
    seconds = row["seconds"]
    return (
        f"global batch {row['global_batch']:>11,}: {median(seconds):.3f} s "
        f"({min(seconds):.3f} to {max(seconds):.3f}), {row['types_used']} types used"
    )


def _save(
    options: argparse.Namespace,
    rows: list[dict[str, Any]],
    command_s: list[float],
    help_s: list[float],
) -> None:
    RESULTS.mkdir(exist_ok=True)
    data = {
        "command": ["python", "bench/plan_size.py", *sys.argv[1:]],
        "cpu": host.cpu_name(),
        "num_cores": host.num_cores(),
        "load": os.getloadavg()[0],
        "gpus": options.gpus,
        "types": options.types,
        "rows": rows,
        "command_s": command_s,
        "help_s": help_s,
    }
    (RESULTS / "plan_size.json").write_text(json.dumps(data) + "\n")
    text = [f"{options.gpus:,} GPUs of {options.types} types, on paper", *map(_line, rows)]
    text.append(_command_line(command_s, help_s))
    text.append(f"load average at the end: {data['load']:.1f} on {data['num_cores']} cores")
    (RESULTS / "plan_size.txt").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
