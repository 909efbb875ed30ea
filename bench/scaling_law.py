"""The epoch law against real training: predicted from paired steps, measured by the script itself.

    python bench/scaling_law.py --ranks 2,4 --sizes 16,64,256

So many ranks on gloo measure Tcomp and Tsync at each size (`batchadvisor run --nproc-per-node`),
Tcomp inside DistributedDataParallel with all ranks at work, and of one process while the others
wait. The law says from them what an epoch takes on one process and on all, each with its 90 %
interval.

The same training then runs under torch's own launcher and without any of our code, and times its
steps from fetch to fetch, as the law counts them. Blocks of three kinds take turns, so that what
else the machine does meets all of them alike: one process alone without DistributedDataParallel
while the others sleep, all processes without synchronisation, all with DistributedDataParallel.
The speed-up is that over one process alone. All processes have one thread.

An epoch is the sum of its steps, so a block counts by its mean, as the law counts the steps that it
pairs; of the blocks the median counts.

Prediction and measurement are launches of their own, between which a machine that others share
changes its speed by more than either's interval. So the training is measured before and after each
prediction, which a steady drift leaves in the middle, and all is repeated. The result is the median
over the repetitions with its 90 % interval; the times of all steps are kept. What other work took
of the machine's time meanwhile is kept too. `--add` keeps the repetitions of the last result and
adds to them.
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
from statistics import fmean, median
from typing import Any

from batchadvisor.advisor.measured.distribution import scaling_of
from batchadvisor.probes.devices import host
from batchadvisor.records import Spread
from batchadvisor.session.recording.store import read_record
from batchadvisor.spread import spread_of
from common import RESULTS, TIMED_STEPS
from other_work import OtherWork

NUM_SAMPLES = 16384
FILE = RESULTS / "scaling_law.json"

Times = dict[str, list[list[float]]]
"""Seconds of each step of rank 0, by kind and block."""
Repetition = tuple[dict[str, float], list[Times]]
"""What the law said, and what launches before and after it measured."""

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

TIMED_STEPS
def trainer(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = endless(loader)
    def step():
        inputs, labels = next(batches)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return step

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
    begun = OtherWork()
    with tempfile.TemporaryDirectory(prefix="scaling-") as name:
        folder = Path(name)
        script = folder / "train.py"
        text = SCRIPT.replace("NUM_SAMPLES", str(NUM_SAMPLES))
        script.write_text(text.replace("TIMED_STEPS\n", TIMED_STEPS))
        cases = [(ranks, size) for ranks in options.ranks for size in options.sizes]
        earlier = _earlier() if options.add else {}
        by_case: dict[tuple[int, int], list[Repetition]] = _repetitions(earlier)
        for number in range(options.repeats):
            for case in cases:
                before = _times(script, folder, case, options)
                out = folder / f"run-{case[0]}-{case[1]}-{number}"
                predicted = _predicted(script, out, case, options.budget)
                after = _times(script, folder, case, options)
                by_case.setdefault(case, []).append((predicted, [before, after]))
            print(f"repetition {number + 1} of {options.repeats}", file=sys.stderr, flush=True)
            rows = [_row(case, repetitions) for case, repetitions in by_case.items()]
            _save(rows, begun, earlier)  # a bench that is ended early has what it measured
    print("\n".join(map(_line, rows)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    numbers = {"type": lambda text: [int(part) for part in text.split(",")]}
    parser.add_argument("--ranks", **numbers, default=[2, 4])
    parser.add_argument("--sizes", **numbers, default=[16, 64, 256])
    parser.add_argument("--repeats", type=int, default=5, help="of prediction and measurement")
    parser.add_argument("--blocks", type=int, default=6, help="blocks of each kind, in turn")
    parser.add_argument("--steps", type=int, default=10, help="timed steps of each block")
    parser.add_argument("--budget", default="20s")
    parser.add_argument("--add", action="store_true", help="to the repetitions of the last result")
    return parser.parse_args()


def _predicted(script: Path, out: Path, case: tuple[int, int], budget: str) -> dict[str, float]:
    """Seconds an epoch on one and on all, and the speed-up, by the law."""
    ranks, size = case
    command = [
        *(sys.executable, "-m", "batchadvisor", "run", "--nproc-per-node", str(ranks)),
        *("--device", "cpu", "-q", "--no-profile", "--sizes", str(size), "--budget", budget),
        *("-o", str(out), str(script), str(size), "0", "0", "-"),
    ]
    subprocess.run(command, check=True, env=_environment(), stdout=subprocess.DEVNULL)
    scaling = scaling_of(read_record(out), size)
    assert scaling is not None, f"no pairs at {size}"
    points = {point.world_size: point for point in scaling.points}
    one, all_ranks = points[1].epoch_s, points[ranks].epoch_s
    assert scaling.alone_s is not None, scaling.unavailable
    assert one is not None
    assert all_ranks is not None
    return {
        "one": one.median,
        "all": all_ranks.median,
        "speedup": points[ranks].speedup.median,
        "shared": scaling.compute_s.median / scaling.alone_s.median,
    }


def _times(script: Path, folder: Path, case: tuple[int, int], options: argparse.Namespace) -> Times:
    """What one launch measures."""
    out = folder / "times.json"
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *(f"--nproc-per-node={case[0]}", f"--log-dir={folder}", str(script), str(case[1])),
        *(str(options.blocks), str(options.steps), str(out)),
    ]
    subprocess.run(command, check=True, env=_environment(), stderr=subprocess.DEVNULL)
    times: Times = json.loads(out.read_text())
    return times


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def _measured(case: tuple[int, int], launches: list[Times]) -> dict[str, float]:
    """The same from the steps of the launches around a prediction: means over them."""
    measured = [_by_launch(case, times) for times in launches]
    return {name: fmean(each[name] for each in measured) for name in measured[0]}


def _by_launch(case: tuple[int, int], times: Times) -> dict[str, float]:
    """The same from the steps of one launch: medians over its blocks, and of the blocks' ratios."""
    ranks, size = case
    step_s = {kind: [fmean(block) for block in blocks] for kind, blocks in times.items()}
    one, every = -(-NUM_SAMPLES // size), -(-NUM_SAMPLES // (ranks * size))
    together = step_s["together"]
    return {
        "one": one * median(step_s["alone"]),
        "all": every * median(together),
        "speedup": median(
            one * single / (every * all_ranks)
            for single, all_ranks in zip(step_s["alone"], together, strict=True)
        ),
        "shared": median(
            busy / single for busy, single in zip(step_s["busy"], step_s["alone"], strict=True)
        ),
    }


def _row(case: tuple[int, int], repetitions: list[Repetition]) -> dict[str, Any]:
    said = _spreads([predicted for predicted, _ in repetitions])
    results = [_measured(case, launches) for _, launches in repetitions]
    measured = _spreads(results)
    ratios = [
        predicted["speedup"] / result["speedup"]
        for (predicted, _), result in zip(repetitions, results, strict=True)
    ]
    return {
        "num_ranks": case[0],
        "batch_size": case[1],
        "predicted_over_measured_speedup": _plain(spread_of(ratios)),
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
                "step_s": [
                    {
                        kind: [[round(step, 6) for step in block] for block in blocks]
                        for kind, blocks in times.items()
                    }
                    for times in launches
                ],
            }
            for predicted, launches in repetitions
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

    ratio = row["predicted_over_measured_speedup"]
    title = f"{row['num_ranks']} ranks, batch {row['batch_size']} a rank"
    lines = [f"{title}, seconds an epoch, 90 % intervals"]
    for name, label, unit in (
        ("one", "one process alone", " s"),
        ("all", f"{row['num_ranks']} processes", " s"),
        ("speedup", "speed-up", "x"),
        ("shared", "Tcomp with all at work over alone", "x"),
    ):
        meet = "meet" if row["intervals_meet"][name] else "do not meet"
        lines.append(
            f"  {label:<33}  predicted {text('predicted', name, unit)}  "
            f"measured {text('measured', name, unit)}  intervals {meet}"
        )
    lines.append(
        f"  predicted over measured speed-up, of the repetitions: {ratio['median']:.3f} "
        f"({ratio['low']:.3f} to {ratio['high']:.3f}), of {len(row['repetitions'])}"
    )
    return "\n".join(lines)


def _earlier() -> dict[str, Any]:
    """The last result, as `_save` wrote it.

    Raises:
        SystemExit: there is none, or it is of another machine.
    """
    try:
        data: dict[str, Any] = json.loads(FILE.read_text())
    except FileNotFoundError:
        raise SystemExit(f"--add: there is no {FILE.name} to add to. Leave --add out.") from None
    if (data["cpu"], data["num_cores"]) != (host.cpu_name(), host.num_cores()):
        raise SystemExit(f"--add: {FILE.name} is of another machine. Leave --add out.")
    return data


def _repetitions(earlier: dict[str, Any]) -> dict[tuple[int, int], list[Repetition]]:
    """The repetitions of an earlier result, by ranks and batch size."""
    return {
        (row["num_ranks"], row["batch_size"]): [
            (repetition["predicted"], repetition["step_s"]) for repetition in row["repetitions"]
        ]
        for row in earlier.get("rows", ())
    }


def _save(rows: list[dict[str, Any]], begun: OtherWork, earlier: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    run = {
        "command": ["python", "bench/scaling_law.py", *sys.argv[1:]],
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "load": os.getloadavg()[0],
        "other_work_pct": begun.others_pct(),
    }
    data = {
        "cpu": host.cpu_name(),
        "num_cores": host.num_cores(),
        "num_samples": NUM_SAMPLES,
        "runs": [*earlier.get("runs", ()), run],
        "rows": rows,
    }
    FILE.write_text(json.dumps(data) + "\n")
    others = [part["other_work_pct"] for part in data["runs"] if part["other_work_pct"] is not None]
    noise = f"Other work took at most {max(others):.0f} % of the cores' time.\n" if others else ""
    text = "\n".join(map(_line, rows)) + "\n" + noise
    FILE.with_suffix(".txt").write_text(text, encoding="utf-8")
    print(f"Wrote {FILE}")


if __name__ == "__main__":
    main()
