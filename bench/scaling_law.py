"""The epoch law against real training: predicted from paired steps, measured by the script itself.

    python bench/scaling_law.py --sizes 16,64,256

Two ranks on gloo measure Tcomp and Tsync at each size (`batchadvisor run --nproc-per-node 2`), and
the law says from them what an epoch takes on one process and on two, each with its 90 % interval.

The same training then runs under torch's own launcher and without any of our code, and times its
steps from fetch to fetch, as the law counts them. Blocks of three kinds take turns, so that what
else the machine does meets all of them alike: one process alone while the other sleeps, both
processes without synchronisation, both with DistributedDataParallel. The second kind is what the
law calls one device: it takes Tcomp with all ranks busy, since they share the host's caches and
memory. The first shows what that sharing costs, which is no part of the law. Both processes have
one thread.

Prediction and measurement are launches of their own, between which a machine that others share
changes its speed by more than either's interval. So they are repeated in turn, and the result is
the median over the repetitions with its 90 % interval; the times of all steps are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

from batchadvisor.advisor.measured.distribution import scaling_of
from batchadvisor.probes.devices import host
from batchadvisor.records import Spread
from batchadvisor.session.recording.store import read_record
from batchadvisor.spread import spread_of

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
NUM_SAMPLES = 16384

Repetition = tuple[dict[str, float], dict[str, list[list[float]]]]
"""What the law said, and the seconds of each step by kind and block."""

SCRIPT = """
import json, os, sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

size, num_blocks, num_steps, out = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
torch.manual_seed(0)
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
x = torch.randn(NUM_SAMPLES, 512)
data = TensorDataset(x, (x[:, 0] > 0).long())
whole = DataLoader(data, batch_size=size, shuffle=True)
part = DataLoader(data, batch_size=size, sampler=DistributedSampler(data))

def network():
    return nn.Sequential(
        nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 2)
    )

def endless(loader):
    while True:
        yield from loader

def trainer(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = endless(loader)
    def step():
        inputs, labels = next(batches)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return step

def block(step):
    step()
    times = []
    for _ in range(num_steps):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return times

# The tool steers this loop: two ranks, DistributedDataParallel, for as long as it likes.
shared = trainer(DistributedDataParallel(network()), part)
if out == "-":
    while True:
        shared()
single = trainer(network(), whole)
times = {"alone": [], "busy": [], "together": []}
for turn in range(num_blocks):
    kinds = list(times)
    for kind in kinds[turn % 3 :] + kinds[: turn % 3]:
        dist.barrier()
        if kind != "alone" or rank == 0:
            times[kind].append(block(shared if kind == "together" else single))
dist.barrier()
if rank == 0:
    with open(out, "w") as file:
        json.dump(times, file)
"""


def main() -> None:
    options = _options()
    rows = []
    with tempfile.TemporaryDirectory(prefix="scaling-") as name:
        folder = Path(name)
        script = folder / "train.py"
        script.write_text(SCRIPT.replace("NUM_SAMPLES", str(NUM_SAMPLES)))
        by_size: dict[int, list[Repetition]] = {size: [] for size in options.sizes}
        for number in range(options.repeats):
            for size in options.sizes:
                predicted = _predicted(
                    script, folder / f"run-{size}-{number}", size, options.budget
                )
                by_size[size].append((predicted, _times(script, folder, size, options)))
            print(f"repetition {number + 1} of {options.repeats}", file=sys.stderr, flush=True)
        for size, repetitions in by_size.items():
            rows.append(_row(size, repetitions))
            print(_line(rows[-1]), flush=True)
    _save(rows)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sizes", type=lambda text: [int(part) for part in text.split(",")], default=[16, 64, 256]
    )
    parser.add_argument("--repeats", type=int, default=5, help="of prediction and measurement")
    parser.add_argument("--blocks", type=int, default=6, help="blocks of each kind, in turn")
    parser.add_argument("--steps", type=int, default=10, help="timed steps of each block")
    parser.add_argument("--budget", default="20s")
    return parser.parse_args()


def _predicted(script: Path, out: Path, size: int, budget: str) -> dict[str, float]:
    """Seconds an epoch on one and on two, and the speed-up, by the law."""
    command = [
        *(sys.executable, "-m", "batchadvisor", "run", "--nproc-per-node", "2"),
        *("--device", "cpu", "-q", "--no-profile", "--sizes", str(size), "--budget", budget),
        *("-o", str(out), str(script), str(size), "0", "0", "-"),
    ]
    subprocess.run(command, check=True, env=_environment(), stdout=subprocess.DEVNULL)
    scaling = scaling_of(read_record(out), size)
    assert scaling is not None, f"no pairs at {size}"
    points = {point.world_size: point for point in scaling.points}
    one, two, speedup = points[1].epoch_s, points[2].epoch_s, points[2].speedup
    assert one is not None
    assert two is not None
    assert speedup is not None
    return {"one": one.median, "two": two.median, "speedup": speedup.median}


def _times(
    script: Path, folder: Path, size: int, options: argparse.Namespace
) -> dict[str, list[list[float]]]:
    """Seconds of each step of rank 0, by kind and block."""
    out = folder / "times.json"
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *("--nproc-per-node=2", f"--log-dir={folder}", str(script), str(size)),
        *(str(options.blocks), str(options.steps), str(out)),
    ]
    subprocess.run(command, check=True, env=_environment(), stderr=subprocess.DEVNULL)
    times: dict[str, list[list[float]]] = json.loads(out.read_text())
    return times


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def _measured(size: int, times: dict[str, list[list[float]]]) -> dict[str, float]:
    """The same from the steps of one launch: medians over its blocks, and of the blocks' ratios."""
    step_s = {kind: [median(block) for block in blocks] for kind, blocks in times.items()}
    one, two = -(-NUM_SAMPLES // size), -(-NUM_SAMPLES // (2 * size))
    ratios = {
        kind: median(
            one * single / (two * both)
            for single, both in zip(step_s[kind], step_s["together"], strict=True)
        )
        for kind in ("busy", "alone")
    }
    return {
        "one": one * median(step_s["busy"]),
        "one_alone": one * median(step_s["alone"]),
        "two": two * median(step_s["together"]),
        "speedup": ratios["busy"],
        "speedup_over_alone": ratios["alone"],
    }


def _row(size: int, repetitions: list[Repetition]) -> dict[str, Any]:
    said = _spreads([predicted for predicted, _ in repetitions])
    measured = _spreads([_measured(size, times) for _, times in repetitions])
    return {
        "batch_size": size,
        "predicted": said,
        "measured": measured,
        "intervals_meet": {
            name: said[name]["low"] <= measured[name]["high"]
            and measured[name]["low"] <= said[name]["high"]
            for name in said
        },
        "repetitions": [
            {
                "predicted": predicted,
                "step_s": {
                    kind: [[round(step, 6) for step in block] for block in blocks]
                    for kind, blocks in times.items()
                },
            }
            for predicted, times in repetitions
        ],
    }


def _spreads(rows: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    return {name: _plain(spread_of([row[name] for row in rows])) for name in rows[0]}


def _plain(spread: Spread | None) -> dict[str, float]:
    assert spread is not None
    return {"median": spread.median, "low": spread.low, "high": spread.high}


def _line(row: dict[str, Any]) -> str:
    def text(kind: str, name: str, unit: str) -> str:
        spread = row[kind][name]
        return f"{spread['median']:.3f}{unit} ({spread['low']:.3f} to {spread['high']:.3f})"

    lines = [f"batch {row['batch_size']} a rank, seconds an epoch, 90 % intervals"]
    for name, label, unit in (
        ("one", "one process, both cores busy", " s"),
        ("two", "two processes", " s"),
        ("speedup", "speed-up", "x"),
    ):
        meet = "meet" if row["intervals_meet"][name] else "do not meet"
        lines.append(
            f"  {label:<28}  predicted {text('predicted', name, unit)}  "
            f"measured {text('measured', name, unit)}  intervals {meet}"
        )
    lines.append(
        f"  {'one process alone':<28}  measured {text('measured', 'one_alone', ' s')}; "
        f"two are {text('measured', 'speedup_over_alone', 'x')} as fast as it"
    )
    return "\n".join(lines)


def _save(rows: list[dict[str, Any]]) -> None:
    RESULTS.mkdir(exist_ok=True)
    data = {
        "command": ["python", "bench/scaling_law.py", *sys.argv[1:]],
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu": host.cpu_name(),
        "num_cores": host.num_cores(),
        "load": os.getloadavg()[0],
        "num_samples": NUM_SAMPLES,
        "rows": rows,
    }
    path = RESULTS / "scaling_law.json"
    path.write_text(json.dumps(data) + "\n")
    (RESULTS / "scaling_law.txt").write_text("\n".join(map(_line, rows)) + "\n", encoding="utf-8")
    print(f"Wrote {path}")


if __name__ == "__main__":
    main()
