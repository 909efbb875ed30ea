"""The answer of `batchadvisor run` on a machine that others use, against truths of quiet hours.

    python bench/under_load.py                                   # everything, 20 runs each
    python bench/under_load.py --runs 2 --conditions stalls,busy3 --scripts flat,char_gpt
    python bench/under_load.py --runs 0 --interrupts 40 --scripts flat
    python bench/under_load.py --resume bench/results/under-load_....json

First the truth: steps of a grid of sizes in turn in one process, once for each script; start it on
a quiet machine. Then each run as a user would type it, under each condition: an answer must lie
within the tolerance of the best of the grid, or keep the script's own size, or say that it is too
noisy to tell; never is a size recommended that is slower than the own. The time from the first
trial on must stay below 1.2 times the budget and a step; a step in which the process was stopped
lasts as long as the stop. No grid goes beyond the sizes that leave ten steps an epoch, as no answer
does. What was measured is kept as it comes, and `--resume` goes on with what is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import loads
from batchadvisor.probes.devices import host
from common import EXAMPLES, HERE, RESULTS, Bench, Results, say, scratch_folder
from load_verdicts import judged, report, true_step_s

PLANTED = HERE / "planted"
SCRIPTS = {  # the file, its own size, the grid of the truth
    "char_gpt": (EXAMPLES / "char_gpt.py", 8, (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)),
    "resnet18_cifar10": (EXAMPLES / "resnet18_cifar10.py", 16, (1, 2, 4, 8, 16, 32, 64, 128)),
    "flat": (PLANTED / "flat.py", 4, (1, 2, 4, 8, 16, 32, 64, 128)),
    "fixed_cost": (PLANTED / "fixed_cost.py", 4, (1, 4, 16, 64, 128, 256, 408)),
    "own_is_best": (PLANTED / "own_is_best.py", 48, (4, 8, 16, 32, 48, 64, 96, 128, 256)),
}
BUSY = {"busy1": 1, "busy3": 3, "busy6": 6, "spinning": 1}
"""Conditions with so many busy processes."""
CONDITIONS = ("quiet", *BUSY, "quota", "stalls")
QUOTA_CORES = 1.0
STEPS_BETWEEN_BURSTS = 10
MARKER = "BATCHADVISOR_BENCH_RUN"
"""A variable of everything that a run started, to find what it left behind."""
LEAVE_S = 30.0
"""Time to end after Ctrl-C."""


# the truth -----------------------------------------------------------------------------------


def measure_truth(path: Path, sizes: tuple[int, ...], rounds: int) -> dict[str, Any]:
    """Step times of each size in turn; the first quartile over rounds is what a quiet one takes."""
    load = os.getloadavg()[0]
    with Bench(path, [], "cpu") as bench:
        turns = bench.in_turn(sizes, rounds)
    step_s = {}
    for column, size in enumerate(turns.sizes):
        times = sorted(row[column] for row in turns.step_s if row[column] is not None)
        step_s[str(size)] = times[len(times) // 4]
    return {"step_s": step_s, "load": load, "rounds": [list(row) for row in turns.step_s]}


# one run -------------------------------------------------------------------------------------


@contextlib.contextmanager
def condition(name: str) -> Iterator[Any]:
    """Makes the machine like that; gives what wraps a command.

    Raises:
        loads.Unavailable: this machine cannot be.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(loads.neighbours(BUSY.get(name, 0)))
        if name == "quota":
            yield stack.enter_context(loads.quota(QUOTA_CORES))
        else:
            yield list


def command_of(script: Path, budget_s: float, folder: str) -> list[str]:
    """As a user would type it, with its answer as JSON."""
    command = [sys.executable, "-m", "batchadvisor", "run", "--json", "--quiet"]
    command += ["--device", "cpu", "--budget", f"{budget_s:g}s", "-o", f"{folder}/run"]
    return [*command, str(script)]


def sessions_below(pid: int) -> list[int]:
    """The workers of a run: processes below it that lead a session of their own."""
    leaders = []
    for child in host.descendants(pid):
        with contextlib.suppress(ProcessLookupError):
            leaders += [child] if os.getsid(child) == child else []
    return leaders


def loop_found(kept: Path) -> bool:
    """Whether a run's record says that its trials began; the start is left in peace."""
    try:
        return json.loads(kept.read_text()).get("discovery") is not None
    except (OSError, ValueError):
        return False


def one_run(
    name: str, script: Path, budget_s: float, between_s: float, seed: int
) -> dict[str, Any]:
    """One run under a condition, as plain data."""
    variables = {**os.environ, MARKER: uuid.uuid4().hex}
    if name == "spinning":
        variables["OMP_NUM_THREADS"] = str(2 * host.num_cores())
    with scratch_folder() as folder, condition(name) as wrapped:
        start = time.monotonic()
        process = subprocess.Popen(
            wrapped(command_of(script, budget_s, folder)),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=variables, start_new_session=True,
        )  # fmt: skip
        kept = Path(folder) / "run" / "record.json"
        bursts = loads.Bursts(
            lambda: sessions_below(process.pid) if loop_found(kept) else [], between_s, seed
        )
        with bursts if name == "stalls" else contextlib.nullcontext():
            text, errors = _communicate(process)
        row = {"wall_s": time.monotonic() - start, "exit_code": process.returncode}
        row["left"] = left(variables)  # before the cgroup goes, with all in it
    row |= {"num_bursts": bursts.count, "stopped_s": bursts.stopped_s}
    row["longest_stop_s"] = bursts.longest_s
    if text:
        row |= told(json.loads(text))
    else:
        row["error"] = (errors.strip().splitlines() or ["no output"])[-1]
    return row


def _communicate(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it printed; our own Ctrl-C ends it first."""
    try:
        return process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LEAVE_S)
        process.kill()
        raise


def left(variables: dict[str, str]) -> int:
    """How many processes of a run are still there, a moment after its end."""
    marker = f"{MARKER}={variables[MARKER]}".encode()
    deadline = time.monotonic() + 2
    while True:
        count = 0
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                count += marker in (entry / "environ").read_bytes().split(b"\0")
        if not count or time.monotonic() > deadline:
            return count
        time.sleep(0.1)


def told(printed: dict[str, Any]) -> dict[str, Any]:
    """What of an answer is judged and kept; the trials without their traces and operators."""
    advice, record = printed["advice"], printed["record"]
    chosen = advice["recommended"]
    kept = ("batch_size", "kind", "purpose", "outcome", "detail", "step_s", "elapsed_s", "ended_s")
    kept += ("quality", "causes", "tool_cpu_pct", "doubts", "turns")
    return {
        "recommended": chosen and chosen["batch_size"],
        "own": (record.get("discovery") or {}).get("native_batch_size"),
        "sizes_timed": [size["batch_size"] for size in advice["sizes"] if size["samples_per_s"]],
        **{key: advice[key] for key in ("headline", "reason", "change", "sureness")},
        **{key: record[key] for key in ("state", "search_s", "elapsed_s", "stop_reason")},
        "trials": [{key: trial.get(key) for key in kept} for trial in record["trials"]],
    }


# interrupts ----------------------------------------------------------------------------------


def one_interrupt(script: Path, budget_s: float, after_s: float) -> dict[str, Any]:
    """Ctrl-C at one moment: what was said, and what was left behind."""
    variables = {**os.environ, MARKER: uuid.uuid4().hex}
    row: dict[str, Any] = {"after_s": after_s}
    with scratch_folder() as folder:
        process = subprocess.Popen(
            command_of(script, budget_s, folder),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=variables, start_new_session=True,
        )  # fmt: skip
        try:
            text, errors = process.communicate(timeout=after_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            sent = time.monotonic()
            try:
                text, errors = process.communicate(timeout=LEAVE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                text, errors = process.communicate()
            row["took_s"] = time.monotonic() - sent
        row |= {"exit_code": process.returncode, "left": left(variables)}
        row["traceback"] = "Traceback" in errors
        row |= _record_kept(Path(folder) / "run")
    if text:
        row |= told(json.loads(text))
    size, own = row.get("recommended"), row.get("own")
    row["compared"] = size in (None, own) or {size, own} <= set(row["sizes_timed"])
    row["right"] = row["compared"] and row["record"] != "broken" and not row["left"]
    row["right"] = row["right"] and not row["traceback"] and row.get("took_s", 0.0) < LEAVE_S
    return row


def _record_kept(folder: Path) -> dict[str, Any]:
    from batchadvisor.session.recording.store import read_record  # noqa: PLC0415

    if not (folder / "record.json").exists():
        return {"record": "none yet"}
    try:
        record = read_record(folder)
    except Exception as error:  # noqa: BLE001  whatever is wrong with it
        return {"record": "broken", "error": str(error)}
    return {"record": record.state, "num_trials": len(record.trials)}


# the whole -----------------------------------------------------------------------------------


def measure_all(options: argparse.Namespace, results: Results) -> None:
    """What is missing: truths, runs, interrupts."""
    data = results.data
    for part, empty in (("truth", {}), ("runs", []), ("interrupts", []), ("unavailable", {})):
        data.setdefault(part, empty)
    for name in options.scripts:
        if name not in data["truth"]:
            path, _, sizes = SCRIPTS[name]
            say(f"truth of {name}: {', '.join(map(str, sizes))}")
            data["truth"][name] = measure_truth(path, sizes, options.rounds)
            results.save()
    done = {(row["script"], row["condition"], row["number"]) for row in data["runs"]}
    wanted = itertools.product(range(options.runs), options.scripts, options.conditions)
    for number, name, kind in wanted:
        if (name, kind, number) in done or kind in data["unavailable"]:
            continue
        truth, (path, own, _) = data["truth"][name], SCRIPTS[name]
        own_s = true_step_s(truth, own)
        try:
            row = one_run(kind, path, options.budget, STEPS_BETWEEN_BURSTS * own_s, number)
        except loads.Unavailable as reason:
            data["unavailable"][kind] = str(reason)
            continue
        row |= {"script": name, "condition": kind, "number": number, "budget_s": options.budget}
        data["runs"].append(row)
        results.save()
        verdict = judged(row, truth, options.budget)
        right = "right" if verdict["right"] else "WRONG"
        say(f"{name}, {kind}, run {number + 1}: {right}: {row.get('headline', row.get('error'))}")
    _interrupt_all(options, results)


def _interrupt_all(options: argparse.Namespace, results: Results) -> None:
    """Ctrl-C at random moments, until as many as asked for came before the run's own end."""
    rows = results.data["interrupts"]
    generator = random.Random(len(rows))
    latest_s = dict.fromkeys(options.scripts, 1.2 * options.budget + 10)
    while (number := sum("took_s" in row for row in rows)) < options.interrupts:
        name = options.scripts[number % len(options.scripts)]
        start = time.monotonic()
        after_s = generator.uniform(0.2, latest_s[name])
        row = one_interrupt(SCRIPTS[name][0], options.budget, after_s)
        rows.append(row | {"script": name})
        results.save()
        if "took_s" in row:
            right = "right" if row["right"] else "WRONG"
            say(f"{name}, Ctrl-C {number + 1} after {after_s:.1f} s: {right}")
        else:  # it was over before
            latest_s[name] = min(latest_s[name], time.monotonic() - start)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20, help="of each script and condition (20)")
    parser.add_argument("--interrupts", type=int, default=0, help="runs to interrupt (0)")
    parser.add_argument("--conditions", type=_some(CONDITIONS), default=list(CONDITIONS))
    parser.add_argument("--scripts", type=_some(tuple(SCRIPTS)), default=list(SCRIPTS))
    parser.add_argument("--budget", type=float, default=120.0, help="of a run (%(default)s s)")
    parser.add_argument("--rounds", type=int, default=60, help="of the truth (%(default)s)")
    parser.add_argument("--resume", type=Path, help="results of an earlier part, as JSON")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument("--no-results", action="store_true", help="print only")
    options = parser.parse_args()
    folder = None if options.no_results else options.results
    results = Results(folder, "under-load", options.resume)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what runs meanwhile is ended too
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` has it ignored
    try:
        measure_all(options, results)
        results.data["state"] = "finished"
    except KeyboardInterrupt:
        results.data["state"] = "interrupted"
    results.finish(report(results.data))
    sys.exit(0 if results.data["state"] == "finished" else 1)


def _some(known: tuple[str, ...]) -> Any:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        if not set(names) <= set(known):
            msg = f"not among {', '.join(known)}: {text}"
            raise argparse.ArgumentTypeError(msg)
        return names

    return parse


if __name__ == "__main__":
    main()
