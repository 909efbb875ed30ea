"""What finding the largest batch size costs, beside the finders in use: trials, steps, refusals.

    python bench/search_cost.py --peer-python /path/to/venv/bin/python
    python bench/search_cost.py --limits 700 --finders batchadvisor

One script for all (search_workload.py): its step raises torch.OutOfMemoryError above N samples.
`visible`: the device can be read, its peak is fixed + slope x size and reaches the capacity at N;
`blind`: the step only raises. Steps on fake tensors see its tensors, and see them wrong (--seen).
Ours is the whole real `batchadvisor run --goal memory`: every worker
process, the discovery of the loop in each, and the confirmation in a fresh process are counted.
The others run in one process as their documentation shows them (search_peers.py), in an environment
that holds them: `pip install lightning accelerate batchtune batch-finder` into one of its own.

Counts do not depend on how busy the machine is; wall times do.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import groupby
from pathlib import Path
from typing import Any

from common import HERE, RESULTS, Results, header, say, table

LIMITS = (100, 700, 5000, 20_000)
FIXED = (0.10, 0.40, 0.75)
MARGIN = 0.05
OURS = "batchadvisor"
PEERS = ("lightning-power", "lightning-binsearch", "accelerate", "batchtune", "batch-finder")
READS = (OURS, "batchtune")
"""The finders that look at the device's memory; the others see no difference."""
LIMIT_S = 600
SEEN = 0.88
"""Of what a sample takes, what steps on fake tensors see."""
TRIALS, STEPS, REFUSALS = "trials", "steps", "out_of_memory"
GOALS = {
    "visible": {TRIALS: 4, STEPS: 14, REFUSALS: 0},
    "blind": {TRIALS: 9, STEPS: 24, REFUSALS: 3},
}
"""Ours at GOAL_LIMIT."""
GOAL_LIMIT = 700
GOAL_SHARE = 0.92


def run_one(
    finder: str, limit: int, fixed: float | None, seen: float, python: str
) -> dict[str, Any]:
    """One finder on one machine, as plain data."""
    with tempfile.TemporaryDirectory(prefix="search-cost-") as name:
        folder = Path(name)
        log = folder / "steps.log"
        log.touch()
        environment = {
            **os.environ,
            "SEARCH_LIMIT": str(limit),
            "SEARCH_SEEN": str(seen),
            "SEARCH_FIXED": "" if fixed is None else str(fixed),
            "SEARCH_LOG": str(log),
            "CUDA_VISIBLE_DEVICES": "",
        }
        start = time.monotonic()
        result = (
            _ours(folder, environment) if finder == OURS else _peer(finder, python, environment)
        )
        wall_s = time.monotonic() - start
        started = [line.split() for line in log.read_text().splitlines()]
    steps = [step for step in started if step[2] != "fake"]
    groups = [(key, len(list(some))) for key, some in groupby(steps, key=lambda step: step[:2])]
    fits = limit if fixed is None else int(limit * (1 - MARGIN - fixed) / (1 - fixed))
    ran = {int(size) for _, size, outcome in steps if outcome == "ok"}
    answer = result["answer"]
    return {
        "finder": finder,
        "limit": limit,
        "fixed": fixed,
        TRIALS: len(groups),
        STEPS: len(steps),
        REFUSALS: sum(outcome == "oom" for _, _, outcome in steps),
        "fake": len(started) - len(steps),
        "samples": sum(int(size) for _, size, _ in steps),
        "seen": seen,
        "processes": len({process for process, _, _ in started}),
        "fits": fits,
        "share": None if answer is None else answer / fits,
        "ran": None if answer is None else answer in ran,
        "wall_s": wall_s,
        **result,
    }


def _ours(folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "batchadvisor", "run", "--json", "-q", "-o", folder / "out"]
    # Long enough that a busy machine, on which scripts start slowly, makes the same trials.
    command += ["--budget", "400s"]
    command += ["--goal", "memory", "--device", "cpu", HERE / "search_workload.py"]
    done = _run([str(word) for word in command], environment)
    try:
        said = json.loads(done.stdout)
    except json.JSONDecodeError:
        return {"answer": None, "error": done.stderr.strip()[-500:]}
    chosen = said["advice"]["recommended"]
    trials = [
        (trial["batch_size"], trial["purpose"], trial["outcome"])
        for trial in said["record"]["trials"]
    ]
    return {
        "answer": None if chosen is None else chosen["batch_size"],
        "error": "",
        # What the log shows beside them is the discovery of the loop: steps, but no trials.
        TRIALS: len(trials),
        "sizes": trials,
        "version": said["record"]["versions"]["batchadvisor"],
    }


def _peer(finder: str, python: str, environment: dict[str, str]) -> dict[str, Any]:
    done = _run([python, str(HERE / "search_peers.py"), finder], environment)
    lines = done.stdout.strip().splitlines()
    try:
        said: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, json.JSONDecodeError):
        return {"answer": None, "error": done.stderr.strip()[-500:] or "said nothing"}
    return said


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"stopped after {LIMIT_S} s")


def met(row: dict[str, Any]) -> bool:
    """Whether our row is within its goals."""
    goals = GOALS["blind" if row["fixed"] is None else "visible"]
    within = all(row[name] <= most for name, most in goals.items())
    return within and row["share"] is not None and GOAL_SHARE <= row["share"] <= 1 and row["ran"]


def report(data: dict[str, Any]) -> str:
    """The printed tables: counts, then the others as multiples of ours."""
    lines = header(data, "The cost of finding the largest batch size")
    rows = data["rows"]
    machines = sorted({(row["limit"], row["fixed"] or -1.0) for row in rows})
    for limit, fixed in machines:
        some = [row for row in rows if (row["limit"], row["fixed"] or -1.0) == (limit, fixed)]
        kind = "blind" if fixed < 0 else f"visible, {fixed:.0%} fixed"
        lines += [f"N = {limit}, {kind}: {some[0]['fits']} fit", _table(some), ""]
    held = [row for row in rows if row["finder"] == OURS and row["limit"] == GOAL_LIMIT]
    for row in held:
        kind = "blind" if row["fixed"] is None else f"visible, {row['fixed']:.0%} fixed"
        lines.append(f"goals at {GOAL_LIMIT}, {kind}: {'met' if met(row) else 'NOT MET'}")
    return "\n".join([*lines, *_errors(rows)])


def _table(rows: list[dict[str, Any]]) -> str:
    ours = next((row for row in rows if row["finder"] == OURS), None)
    cells = []
    for row in rows:
        share = "-" if row["share"] is None else f"{row['share']:.3f}"
        ran = "-" if row["ran"] is None else "yes" if row["ran"] else "NO"
        ratios = ["", ""]
        if ours is not None and row is not ours and row["answer"] is not None:
            ratios = [f"{row[column] / max(ours[column], 1):.1f}" for column in (STEPS, "samples")]
        cells.append(
            (
                row["finder"],
                *(
                    row[column]
                    for column in (TRIALS, STEPS, REFUSALS, "fake", "samples", "processes")
                ),
                "-" if row["answer"] is None else row["answer"],
                share,
                ran,
                f"{row['wall_s']:.1f}",
                *ratios,
            )
        )
    counts = ("trials", "steps", "refused", "fake", "samples", "processes")
    last = ("answer", "of largest", "ran", "wall s", "steps x", "samples x")
    return table(("finder", *counts, *last), cells)


def _errors(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(
        {f"{row['finder']} at {row['limit']}: {row['error']}" for row in rows if row.get("error")}
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limits", type=int, nargs="+", default=LIMITS, help="(%(default)s)")
    parser.add_argument("--fixed", type=float, nargs="*", default=FIXED, help="(%(default)s)")
    parser.add_argument("--seen", type=float, default=SEEN, help="(%(default)s)")
    parser.add_argument("--finders", nargs="+", default=(OURS, *PEERS), choices=(OURS, *PEERS))
    parser.add_argument(
        "--peer-python", default=sys.executable, help="interpreter that has the other finders"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument("--no-results", action="store_true", help="print only")
    options = parser.parse_args()
    results = Results(None if options.no_results else options.results, "search-cost")
    data = results.data
    data["rows"] = []
    try:
        for limit in options.limits:
            blind: dict[str, dict[str, Any]] = {}
            for fixed in (None, *options.fixed):
                for finder in options.finders:
                    if finder in READS or fixed is None:
                        row = run_one(finder, limit, fixed, options.seen, options.peer_python)
                        blind.setdefault(finder, row)
                    else:  # it does not look; the same run, compared with what fits here
                        row = _seen_from(blind[finder], fixed)
                    data["rows"].append(row)
                    results.save()
                    say(f"N={limit} fixed={fixed} {finder}: {row['answer']} in {row[STEPS]} steps")
        data["state"] = "finished"
    except KeyboardInterrupt:
        data["state"] = "interrupted"
    results.finish(report(data))
    missed = [row for row in data["rows"] if row["finder"] == OURS and row["limit"] == GOAL_LIMIT]
    sys.exit(0 if data["state"] == "finished" and all(map(met, missed)) else 1)


def _seen_from(row: dict[str, Any], fixed: float) -> dict[str, Any]:
    """The run of a finder that reads no memory, on a device that could be read."""
    fits = int(row["limit"] * (1 - MARGIN - fixed) / (1 - fixed))
    share = None if row["answer"] is None else row["answer"] / fits
    return {**row, "fixed": fixed, "fits": fits, "share": share}


if __name__ == "__main__":
    main()
