"""Real step series with their evidence, quiet and disturbed, for the tests of how steps are judged.

    python bench/record_steps.py --out tests/data/steps
    python bench/record_steps.py --out tests/data/steps --conditions busy1,stopped --steps 40

A small MLP is trained on the CPU; each step is timed and carries what the kernel counted meanwhile,
as a window reads it. A condition is recorded beside so many busy loops, or while the process is
stopped for one to three seconds now and then and goes on (`stopped`). One JSON file a condition:
hardware, kernel, versions, load, and one row a step.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import loads
from batchadvisor.probes.devices import host
from batchadvisor.probes.windows.step_evidence import EvidenceReader, StepEvidence, between
from common import environment, say

BUSY = {"quiet": 0, "busy1": 1, "busy3": 3, "busy6": 6, "spinning": 1, "stopped": 0}
"""Conditions, with so many busy processes."""
THREADS = {"spinning": 2}
"""Threads that compute, where it is not one; beside a busy process they spin on two cores."""
PAUSE_S = 0.2
"""Mean time between two moments in which the process is stopped."""
WARMUP_STEPS = 20
BATCH, WIDTH = 8, 2048
DIGITS = 6
"""Microseconds are enough."""


def main() -> None:
    """Records the conditions that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the JSON files")
    parser.add_argument("--conditions", default=",".join(BUSY))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        json.dump(steps_of(options.steps, options.threads), sys.stdout)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.conditions.split(","):
        say(name)
        data = {"condition": name, "environment": environment(), "batch": BATCH, "width": WIDTH}
        data |= recorded(name, options.steps, THREADS.get(name, options.threads))
        (options.out / f"{name}.json").write_text(_text(data))


def recorded(name: str, num_steps: int, num_threads: int) -> dict[str, Any]:
    """One condition, in a process of its own that nothing else runs in."""
    command = [sys.executable, __file__, "--out", ".", "--worker"]
    command += ["--steps", str(num_steps), "--threads", str(num_threads)]
    with contextlib.ExitStack() as stack:
        stack.enter_context(loads.neighbours(BUSY[name]))
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        assert worker.stdout is not None
        worker.stdout.readline()  # it begins to time: an import that stands still says nothing
        if name == "stopped":
            stack.enter_context(loads.Bursts(lambda: [worker.pid], PAUSE_S, seed=1))
        result: dict[str, Any] = json.load(worker.stdout)
        worker.wait()
    return result


def steps_of(num_steps: int, num_threads: int) -> dict[str, Any]:
    """Timed steps of the MLP with their evidence."""
    import torch  # noqa: PLC0415  only the worker pays for it

    torch.manual_seed(0)
    torch.set_num_threads(num_threads)
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(BATCH, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    for _ in range(WARMUP_STEPS):
        step()
    print("timing", flush=True)
    reader = EvidenceReader(throttled=host.throttle_files())
    rows = []
    for _ in range(num_steps):
        before, start_s = reader.read(), time.perf_counter()
        step()
        seconds = time.perf_counter() - start_s
        evidence = between(before, reader.read())
        rows.append([_short(value) for value in (seconds, *evidence)])
    reader.close()
    return {
        "num_threads": num_threads,
        "load_average_at_end": os.getloadavg(),
        "unavailable": reader.unavailable,
        "columns": ["seconds", *StepEvidence._fields],
        "steps": rows,
    }


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)


def _text(data: dict[str, Any]) -> str:
    """JSON with a line for each step."""
    rows = ",\n".join(f"  {json.dumps(row)}" for row in data.pop("steps"))
    head = json.dumps(data, indent=1)
    return f'{head[:-2]},\n "steps": [\n{rows}\n ]\n}}\n'


if __name__ == "__main__":
    main()
