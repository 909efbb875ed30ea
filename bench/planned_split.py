"""The planned split against equal shares, on two logical CPU devices of unequal strength.

    python bench/planned_split.py

`batchadvisor run` probes a training script on each device of `--device cpu:1,cpu:1@0.4`, one after
the other: one core, and one core that is held to 40 % of its time. `batchadvisor plan` divides a
step over both. The same training then runs as a job of two ranks under DistributedDataParallel
(gloo), each rank on a core of its own, held as its probe was. Sampler and weighted loss are the
code that the plan gives to paste, for its own split and for equal shares; blocks of the two take
turns, ABBA. None of our code is in that loop.

What is predicted is the time of a step with equal shares over that of the planned one. The
exchange of gradients costs both alike and is not in the prediction; it is timed beside.

Prediction and measurement are launches of their own, between which a machine that others share
changes its speed. So both are repeated in turn. The prediction is the median of the repetitions'
plans; what is measured is the median of all pairs of blocks; both have their 90 % interval. A short
check that it works: --repeats 1 --blocks 1 --steps 2 --no-save.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from batchadvisor.features.plan.records import ClusterPlan, PlanOption
from batchadvisor.features.plan.words import snippet_of_shares
from batchadvisor.probes.process.duty_cycle import DutyCycle
from batchadvisor.reports.words.split_snippet import IN_THE_LOOP
from batchadvisor.session.recording.store import read_record
from batchadvisor.session.setup.device_choice import logical_devices
from batchadvisor.spread import spread_of
from common import RESULTS, TIMED_STEPS, Results, header, interval, say, scratch_folder

KINDS = ("plan", "equal shares")
TURNS = (KINDS, KINDS[::-1])

NETWORK = """
import json, os, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
torch.set_num_threads(1)
dataset = TensorDataset(torch.randn(2048, 3, 32, 32), torch.randint(0, 10, (2048,)))
model = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(32 * 8 * 8, 10),
)
plain_loss = nn.functional.cross_entropy
"""
PROBED = (
    NETWORK
    + """
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(1000):
    for inputs, labels in DataLoader(dataset, batch_size=16, shuffle=True):
        optimizer.zero_grad()
        plain_loss(model(inputs), labels).backward()
        optimizer.step()
"""
)
JOB = (
    NETWORK
    + TIMED_STEPS
    + """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
rank, meeting, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
num_blocks, num_steps, turns, code = json.loads(sys.argv[4])
dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def stepper(setup, weight):
    space = {"dataset": dataset, "rank": rank}
    exec(setup, space)
    weight = compile(weight, "plan", "exec")
    batches = endless(space["loader"])
    def step():
        inputs, labels = next(batches)
        assert len(inputs) == space["SIZES"][rank]
        optimizer.zero_grad()
        space["loss"] = plain_loss(model(inputs), labels)
        exec(weight, space)
        space["loss"].backward()
        optimizer.step()
    return step

def together(step):
    dist.barrier()
    return block(step)

gradient = torch.zeros(sum(parameter.numel() for parameter in model.parameters()))
steps = {kind: stepper(*lines) for kind, lines in code.items()}
times = {"exchange": together(lambda: dist.all_reduce(gradient)), **{kind: [] for kind in code}}
for number in range(num_blocks):
    for kinds in turns:
        for kind in kinds:
            times[kind].append(together(steps[kind]))
dist.barrier()
if rank == 0:
    with open(out, "w") as file:
        json.dump(times, file)
"""
)


def main() -> None:
    options = _options()
    results = Results(options.results if options.save else None, "planned-split")
    results.data |= {"device": options.device, "global_batch": options.global_batch}
    rows = results.data["repetitions"] = []
    for number in range(options.repeats):
        with scratch_folder() as name:
            folder = Path(name)
            (folder / "train.py").write_text(PROBED)
            (folder / "job.py").write_text(JOB)
            plan = _plan(folder, options)
            rows.append(_repetition(folder, plan, options))
        results.save()  # a bench that is ended early has what it measured
        say(f"{number + 1} of {options.repeats}: {_line(rows[-1])}")
    results.data["result"] = _result(rows)
    results.data["state"] = "finished"
    results.finish(_text(results.data))


def _options() -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu:1,cpu:1@0.4", help="two logical CPU devices")
    parser.add_argument("--global-batch", type=int, default=192)
    parser.add_argument("--sizes", default="24,96,192", help="what is probed")
    parser.add_argument("--repeats", type=int, default=4, help="of prediction and measurement")
    parser.add_argument("--blocks", type=int, default=2, help="times ABBA in each repetition")
    parser.add_argument("--steps", type=int, default=6, help="timed steps of each block")
    parser.add_argument("--budget", default="18s", help="of each probe")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the raw data")
    parser.add_argument("--no-save", dest="save", action="store_false", help="only print")
    return parser.parse_args()


def _plan(folder: Path, options: argparse.Namespace) -> ClusterPlan:
    """What `plan` says from what `run` measured on the two."""
    ours = [sys.executable, "-m", "batchadvisor"]
    names = []
    for device in logical_devices(options.device):
        run = [
            *(*ours, "run", "-q", "--no-profile", "--budget", options.budget, "-o", device.name),
            *("--sizes", options.sizes, "--device", device.option, "train.py"),
        ]
        subprocess.run(run, cwd=folder, check=True, env=_environment(), stdout=subprocess.DEVNULL)
        names.append(device.name)
    counts = [word for name in names for word in ("--count", f"{name}=1")]
    words = [*ours, "plan", *names, *counts, "--global-batch", str(options.global_batch), "--json"]
    done = subprocess.run(words, cwd=folder, check=False, stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit("plan failed, see above; a longer --budget may help.")
    return msgspec.json.decode(done.stdout, type=ClusterPlan)


def _repetition(folder: Path, plan: ClusterPlan, options: argparse.Namespace) -> dict[str, Any]:
    by_kind = {kind: _option(plan, kind) for kind in KINDS}
    step_s = {kind: option.compute_s for kind, option in by_kind.items()}
    times = _times(folder, by_kind, options)
    devices = [share.name for share in by_kind["plan"].shares]
    return {
        "devices": devices,
        "probed": {name: _probed(folder / name) for name in devices},
        "sizes": {kind: [share.batch_size for share in by_kind[kind].shares] for kind in KINDS},
        "predicted_step_s": step_s,
        "predicted": step_s["equal shares"] / step_s["plan"],  # type: ignore[operator]
        "measured": [
            median(equal) / median(planned)
            for planned, equal in zip(times["plan"], times["equal shares"], strict=True)
        ],
        "exchange_s": median(times["exchange"]),
        "step_s": times,
        "load": os.getloadavg()[0],
    }


def _option(plan: ClusterPlan, kind: str) -> PlanOption:
    [option] = [option for option in plan.options if option.kind == kind]
    if len(option.shares) != 2 or any(share.micro_batches != 1 for share in option.shares):
        sys.exit(f"{kind}: not one micro-batch on each of two devices; probe larger --sizes.")
    return option


def _probed(folder: Path) -> dict[str, Any]:
    """Seconds per step of each window that the plan rests on."""
    windows = [trial for trial in read_record(folder).trials if trial.step_s is not None]
    return {
        "sizes": [trial.batch_size for trial in windows],
        "step_s": [trial.step_s.median for trial in windows if trial.step_s is not None],
    }


def _times(
    folder: Path, by_kind: dict[str, PlanOption], options: argparse.Namespace
) -> dict[str, Any]:
    """Seconds of each step of the first rank, by kind and block."""
    code = {
        kind: snippet_of_shares(option.shares).split(IN_THE_LOOP)
        for kind, option in by_kind.items()
    }
    given = json.dumps([options.blocks, options.steps, TURNS, code])
    out = folder / "times.json"
    names = [share.name for share in by_kind["plan"].shares]
    devices = {device.name: device for device in logical_devices(options.device)}
    with _ranks(folder, out, given) as ranks:
        duties = []
        try:
            for rank, name in zip(ranks, names, strict=True):
                os.sched_setaffinity(rank.pid, devices[name].cores)
                share = float(devices[name].option.partition("@")[2] or 1)
                if share < 1:
                    duties.append(DutyCycle(rank.pid, share))
            for rank in ranks:
                if rank.wait(timeout=600):
                    sys.exit("a rank of the job failed; its error is above.")
        finally:
            for duty in duties:
                duty.close()
    times: dict[str, Any] = json.loads(out.read_text())
    return times


@contextmanager
def _ranks(folder: Path, out: Path, given: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Both processes of the job, each with its own group, so that one can be held."""
    words = [sys.executable, "job.py"]
    ranks = [
        subprocess.Popen(
            [*words, str(rank), str(folder / "meeting"), str(out), given],
            cwd=folder, env=_environment(), start_new_session=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
        shutil.rmtree(folder / "meeting", ignore_errors=True)


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def _result(rows: list[dict[str, Any]]) -> dict[str, Any]:
    predicted = spread_of([row["predicted"] for row in rows])
    measured = spread_of([ratio for row in rows for ratio in row["measured"]])
    exchanged = spread_of(
        [
            (row["predicted_step_s"]["equal shares"] + row["exchange_s"])
            / (row["predicted_step_s"]["plan"] + row["exchange_s"])
            for row in rows
        ]
    )
    over = spread_of([row["predicted"] / median(row["measured"]) for row in rows])
    assert predicted is not None
    assert measured is not None
    return {
        "predicted": msgspec.to_builtins(predicted),
        "measured": msgspec.to_builtins(measured),
        "predicted_over_measured": msgspec.to_builtins(over),
        "with_exchange": msgspec.to_builtins(exchanged),
        "beats_equal": measured.low > 1,
        "prediction_within_measured": measured.low <= predicted.median <= measured.high,
        "intervals_meet": predicted.low <= measured.high and measured.low <= predicted.high,
    }


def _line(row: dict[str, Any]) -> str:
    planned, equal = row["sizes"]["plan"], row["sizes"]["equal shares"]
    return (
        f"planned {planned[0]} + {planned[1]}, equal {equal[0]} + {equal[1]}; equal over planned "
        f"step: predicted {row['predicted']:.3f}, measured {median(row['measured']):.3f} "
        f"({min(row['measured']):.3f} to {max(row['measured']):.3f})"
    )


def _text(data: dict[str, Any]) -> str:
    rows, result = data["repetitions"], data["result"]
    spread = {
        name: interval(msgspec.convert(result[name], type=type(spread_of([1.0]))))
        for name in ("predicted", "measured", "predicted_over_measured", "with_exchange")
    }
    share = median(row["exchange_s"] / median(map(median, row["step_s"]["plan"])) for row in rows)
    beats = "beats equal shares" if result["beats_equal"] else "does not surely beat equal shares"
    if result["prediction_within_measured"]:
        agree = "the predicted factor lies within the measured interval"
    elif result["intervals_meet"]:
        agree = "the predicted factor lies outside the measured interval; the two intervals meet"
    else:
        agree = "the two intervals do not meet"
    first = " and ".join(rows[0]["devices"])
    num_pairs = sum(len(row["measured"]) for row in rows)
    lines = [
        *header(data, "The planned split against equal shares, two ranks of unequal strength"),
        f"{data['global_batch']} samples a step over {first}; median [90 % interval]",
        *(f"  {number}: {_line(row)}" for number, row in enumerate(rows, 1)),
        "",
        "seconds of a step with equal shares over those of the planned split:",
        f"  predicted by the plan, {len(rows)} plans:    {spread['predicted']}",
        f"  measured, {num_pairs} pairs of blocks: {spread['measured']}",
        f"  predicted over measured, by repetition: {spread['predicted_over_measured']}",
        f"  predicted, with the exchange as timed here: {spread['with_exchange']}",
        f"the exchange of gradients, in no plan: {share:.1%} of a planned step",
        f"verdict: the planned split {beats}; {agree}.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
