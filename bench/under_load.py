"""The answer of `batchadvisor run` on a machine that others use, against truths of quiet hours.

    python bench/under_load.py                                   # everything, 20 runs each
    python bench/under_load.py --runs 2 --conditions stalls,busy3 --scripts flat,char_gpt
    python bench/under_load.py --runs 0 --interrupts 40 --scripts flat
    python bench/under_load.py --resume bench/results/under-load_....json

First the truth: steps of a grid of sizes in turn in one process, once for each script; start it on
a quiet machine. Then each run as a user would type it, under each condition: an answer must lie
within the tolerance of the best of the grid, or keep the script's own size, or say that it is too
noisy to tell; never is a size recommended that is slower than the own. The time from the first
trial on must stay below 1.2 times the budget and a step. What was measured is kept as it comes, and
`--resume` goes on with what is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import loads
from batchadvisor.probes import host
from common import EXAMPLES, HERE, RESULTS, Bench, Results, header, say, scratch_folder, table

PLANTED = HERE / "planted"
SCRIPTS = {  # the file, its own size, the grid of the truth
    "char_gpt": (EXAMPLES / "char_gpt.py", 8, (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)),
    "resnet18_cifar10": (EXAMPLES / "resnet18_cifar10.py", 16, (1, 2, 4, 8, 16, 32, 64, 128)),
    "flat": (PLANTED / "flat.py", 4, (1, 2, 4, 8, 16, 32, 64, 128)),
    "fixed_cost": (PLANTED / "fixed_cost.py", 4, (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096)),
    "own_is_best": (PLANTED / "own_is_best.py", 48, (4, 8, 16, 32, 48, 64, 96, 128, 256)),
}
BUSY = {"busy1": 1, "busy3": 3, "busy6": 6, "spinning": 1}
"""Conditions with so many busy processes."""
CONDITIONS = ("quiet", *BUSY, "quota", "stalls")
QUOTA_CORES = 1.0
STEPS_BETWEEN_BURSTS = 10
TOLERANCE = 0.05
"""What the goal `knee` gives away on purpose."""
RESOLUTION = 0.03
"""How well the truth is known: so much more is neither worse than the own nor beyond tolerance."""
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


def true_step_s(truth: dict[str, Any], size: int) -> float:
    """Seconds of a step on the quiet machine; between sizes of the grid by a straight line.

    Beyond the grid as if throughput stayed what it is at its end.
    """
    known = sorted((int(key), value) for key, value in truth["step_s"].items())
    if size <= known[0][0]:
        return known[0][1] * (size / known[0][0] if size < known[0][0] else 1.0)
    for (low, low_s), (high, high_s) in itertools.pairwise(known):
        if size <= high:
            return low_s + (high_s - low_s) * (size - low) / (high - low)
    return known[-1][1] * size / known[-1][0]


def speed(truth: dict[str, Any], size: int) -> float:
    """Samples per second on the quiet machine."""
    return size / true_step_s(truth, size)


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
        bursts = loads.Bursts(lambda: sessions_below(process.pid), between_s, seed)
        with bursts if name == "stalls" else contextlib.nullcontext():
            text, errors = _communicate(process)
        row = {"wall_s": time.monotonic() - start, "exit_code": process.returncode}
    row |= {"num_bursts": bursts.count, "stopped_s": bursts.stopped_s, "left": left(variables)}
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
        "sizes_timed": [one["batch_size"] for one in advice["sizes"] if one["samples_per_s"]],
        **{key: advice[key] for key in ("headline", "reason", "change", "sureness")},
        **{key: record[key] for key in ("state", "search_s", "elapsed_s", "stop_reason")},
        "trials": [{key: trial.get(key) for key in kept} for trial in record["trials"]],
    }


# the verdict on a run ------------------------------------------------------------------------


def judged(row: dict[str, Any], truth: dict[str, Any], budget_s: float) -> dict[str, Any]:
    """What a run got right, from the truth; pure."""
    size, own = row.get("recommended"), row.get("own")
    best = max(speed(truth, int(key)) for key in truth["step_s"])
    verdict: dict[str, Any] = {"answer": answer_of(row)}
    if size is not None and own is not None and verdict["answer"] == "size":
        verdict["share_of_best"] = speed(truth, size) / best
        verdict["over_own"] = speed(truth, size) / speed(truth, own)
        verdict["worse_than_own"] = verdict["over_own"] < 1 - RESOLUTION
        verdict["within"] = verdict["share_of_best"] >= 1 - TOLERANCE - RESOLUTION
        verdict["compared"] = {size, own} <= set(row["sizes_timed"])
    verdict["right"] = verdict["answer"] in ("keeps own", "too noisy") or bool(
        verdict.get("within") and verdict["compared"] and not verdict["worse_than_own"]
    )
    verdict["right"] = verdict["right"] and not row.get("left")
    trials = row.get("trials", [])
    steps = [trial["step_s"]["median"] for trial in trials if trial["step_s"]]
    if "search_s" in row:
        verdict["start_s"] = row["wall_s"] - row["search_s"]
        verdict["over_budget_s"] = row["search_s"] - 1.2 * budget_s - max(steps, default=0.0)
        verdict["right"] = verdict["right"] and verdict["over_budget_s"] <= 0
    qualities = [trial["quality"] for trial in trials if trial["quality"]]
    num_steps = sum(one["num_steps"] for one in qualities)
    if num_steps:
        verdict["disturbed"] = sum(one["num_disturbed"] for one in qualities) / num_steps
    shares = [trial["tool_cpu_pct"] for trial in trials if trial["tool_cpu_pct"] is not None]
    if shares:
        verdict["tool_cpu_pct"] = statistics.median(shares)
    verdict["clean_over_quiet"] = [
        trial["step_s"]["median"] / true_step_s(truth, trial["batch_size"])
        for trial in trials
        if trial["step_s"] and (trial["quality"] or {}).get("method") == "clean steps"
    ]
    verdict["causes"] = sorted({one["kind"] for trial in trials for one in trial["causes"] or ()})
    return verdict


def answer_of(row: dict[str, Any]) -> str:
    """`size`, `keeps own`, `too noisy`, or `none` where nothing was said."""
    size = row.get("recommended")
    said = f"{row.get('headline', '')} {row.get('reason', '')}".lower()
    if "too noisy" in said:
        return "too noisy"
    if size is None:
        return "none"
    return "keeps own" if size == row.get("own") else "size"


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
    from batchadvisor.session.store import read_record  # noqa: PLC0415

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


def report(data: dict[str, Any]) -> str:
    """The printed tables."""
    lines = header(data, "batchadvisor run on a machine that others use")
    rows = []
    by_kind: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in data["runs"]:
        verdict = judged(row, data["truth"][row["script"]], row["budget_s"])
        by_kind.setdefault((row["script"], row["condition"]), []).append(verdict)
    for (name, kind), verdicts in by_kind.items():
        answers = [one["answer"] for one in verdicts]
        ratios = [ratio for one in verdicts for ratio in one["clean_over_quiet"]]
        rows.append((
            name, kind, f"{sum(one['right'] for one in verdicts)}/{len(verdicts)}",
            "/".join(str(answers.count(one)) for one in ("size", "keeps own", "too noisy", "none")),
            sum(one.get("worse_than_own", False) for one in verdicts),
            _over(verdicts, "start_s", statistics.median, 1),
            _over(verdicts, "share_of_best", min, 2), _over(verdicts, "over_budget_s", max, 1),
            _over(verdicts, "disturbed", statistics.median, 2),
            f"{statistics.median(ratios):.3f}" if ratios else "-",
            f"{max(ratios, key=lambda one: abs(math.log(one))):.2f}" if ratios else "-",
            _over(verdicts, "tool_cpu_pct", max, 2),
            " ".join(sorted({cause for one in verdicts for cause in one["causes"]})) or "-",
        ))  # fmt: skip
    if rows:
        headings = ("script", "condition", "right", "size/own/noisy/none", "worse than own", "to first trial s",
                    "least share of best", "over budget s", "disturbed", "clean/quiet",
                    "worst", "tool CPU %", "causes")  # fmt: skip
        lines += [table(headings, rows), ""]
    lines += [f"not measured: {kind}: {why}" for kind, why in data["unavailable"].items()]
    for name, truth in data["truth"].items():
        speeds = [f"{key}: {speed(truth, int(key)):.0f}" for key in truth["step_s"]]
        shown = ", ".join(speeds)
        lines.append(f"truth of {name}, load {truth['load']:.1f} before, samples/s: {shown}")
    cuts = [row for row in data["interrupts"] if "took_s" in row]
    if cuts:
        kinds = sorted({row["record"] for row in cuts})
        records = ", ".join(
            f"{sum(row['record'] == kind for row in cuts)} {kind}" for kind in kinds
        )
        left_count = sum(row["left"] > 0 for row in cuts)
        alone = sum(not row["compared"] for row in cuts)
        right = sum(row["right"] for row in cuts)
        lines += ["", f"Ctrl-C at {len(cuts)} random moments: {right} right"]
        lines.append(f"  {alone} sizes without a comparison, {left_count} times a process was left")
        lines.append(f"  records: {records}")
    return "\n".join(lines)


def _over(verdicts: list[dict[str, Any]], key: str, of: Any, digits: int) -> str:
    values = [one[key] for one in verdicts if key in one]
    return f"{of(values):.{digits}f}" if values else "-"


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
