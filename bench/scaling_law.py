"""The epoch law against real epochs: predicted from paired steps, measured by the script itself.

    python bench/scaling_law.py --sizes 16,64,256

Two ranks on gloo measure Tcomp and Tsync at each size (`batchadvisor run --nproc-per-node 2`). The
same script then trains for a while on one process and on two, alternating, by torch's own launcher
and without any of our code, and times its steps. Both processes have one thread. Shown are the
seconds of an epoch that the law says and that the plain script took, each with its 90 % interval.
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

from batchadvisor.advisor.distribution import scaling_of
from batchadvisor.probes import host
from batchadvisor.records import Spread
from batchadvisor.session.store import read_record
from batchadvisor.spread import spread_of

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
NUM_SAMPLES = 16384

SCRIPT = """
import json, os, sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

size, num_steps, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.manual_seed(0)
torch.set_num_threads(1)
ranks = int(os.environ.get("WORLD_SIZE", "1"))
if ranks > 1:
    dist.init_process_group("gloo")
x = torch.randn(NUM_SAMPLES, 512)
data = TensorDataset(x, (x[:, 0] > 0).long())
sampler = DistributedSampler(data) if ranks > 1 else None
loader = DataLoader(data, batch_size=size, sampler=sampler, shuffle=sampler is None)
model = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 2)
)
if ranks > 1:
    model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
times = []
while len(times) < num_steps:
    for inputs, labels in loader:
        start = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
        if len(times) == num_steps:
            break
if os.environ.get("RANK", "0") == "0" and out != "-":
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
        for size in options.sizes:
            predicted = _predicted(script, folder, size, options.budget)
            measured = _measured(script, folder, size, options)
            rows.append(_row(size, predicted, measured))
            print(_line(rows[-1]), flush=True)
    _save(rows)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sizes", type=lambda text: [int(one) for one in text.split(",")], default=[32, 256]
    )
    parser.add_argument("--steps", type=int, default=40, help="steps of each plain run")
    parser.add_argument("--rounds", type=int, default=3, help="plain runs of each kind, in turn")
    parser.add_argument("--budget", default="40s")
    return parser.parse_args()


def _predicted(script: Path, folder: Path, size: int, budget: str) -> dict[int, Spread]:
    out = folder / f"run-{size}"
    command = [
        *(sys.executable, "-m", "batchadvisor", "run", "--nproc-per-node", "2"),
        *("--device", "cpu", "-q", "--no-profile", "--sizes", str(size), "--budget", budget),
        *("-o", str(out), str(script), str(size), "100000", "-"),
    ]
    subprocess.run(command, check=True, env=_environment(), stdout=subprocess.DEVNULL)
    scaling = scaling_of(read_record(out), size)
    assert scaling is not None, f"no pairs at {size}"
    points = {one.world_size: one.epoch_s for one in scaling.points}
    assert points[1] is not None
    assert points[2] is not None
    return {1: points[1], 2: points[2]}


def _measured(
    script: Path, folder: Path, size: int, options: argparse.Namespace
) -> dict[int, Spread]:
    """Epoch seconds by the plain script's own clock; the first quarter of each run warms up."""
    times: dict[int, list[float]] = {1: [], 2: []}
    for turn in range(options.rounds):
        for ranks in (1, 2) if turn % 2 else (2, 1):
            out = folder / "times.json"
            launch = (
                [sys.executable]
                if ranks == 1
                else [
                    *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
                    *("--nproc-per-node=2", f"--log-dir={folder}"),
                ]
            )
            command = [*launch, str(script), str(size), str(options.steps), str(out)]
            subprocess.run(command, check=True, env=_environment(), stderr=subprocess.DEVNULL)
            found = json.loads(out.read_text())
            times[ranks] += found[len(found) // 4 :]
    epochs = {}
    for ranks, steps in times.items():
        num_steps = -(-NUM_SAMPLES // (ranks * size))
        spread = spread_of([one * num_steps for one in steps])
        assert spread is not None
        epochs[ranks] = spread
    return epochs


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def _row(size: int, predicted: dict[int, Spread], measured: dict[int, Spread]) -> dict[str, object]:
    def plain(one: Spread) -> dict[str, float]:
        return {"median": one.median, "low": one.low, "high": one.high}

    return {
        "batch_size": size,
        "predicted_s": {ranks: plain(one) for ranks, one in predicted.items()},
        "measured_s": {ranks: plain(one) for ranks, one in measured.items()},
        "speedup_predicted": predicted[1].median / predicted[2].median,
        "speedup_measured": measured[1].median / measured[2].median,
    }


def _line(row: dict[str, object]) -> str:
    parts = [f"batch {row['batch_size']:>5}"]
    for kind in ("predicted_s", "measured_s"):
        for ranks, one in row[kind].items():  # type: ignore[attr-defined]
            parts.append(
                f"{kind[:-2]} R={ranks} {one['median']:.3f} s "
                f"({one['low']:.3f} to {one['high']:.3f})"
            )
    parts.append(f"speed-up x{row['speedup_predicted']:.2f} / x{row['speedup_measured']:.2f}")
    return "  ".join(parts)


def _save(rows: list[dict[str, object]]) -> None:
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
    path.write_text(json.dumps(data, indent=1) + "\n")
    (RESULTS / "scaling_law.txt").write_text("\n".join(map(_line, rows)) + "\n")
    print(f"Wrote {path}")


if __name__ == "__main__":
    main()
