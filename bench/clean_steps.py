"""Step times of disturbed windows over those of quiet ones, in the same process, seconds apart.

    python bench/clean_steps.py                          # two scripts, 10 rounds each
    python bench/clean_steps.py --scripts flat --rounds 4
    python bench/clean_steps.py --threads 1

A script runs in batchadvisor's own worker, at its own batch size. A round is four timed windows in
random order: two quiet ones; one in which the process is stopped for one to three seconds after
ten steps on average; one beside a busy process. Each window's step time over that of the round's
quiet window is a ratio; the second quiet window shows what the machine can resolve. A machine that
changes its speed over minutes leaves these ratios alone.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
from math import log
from pathlib import Path
from typing import Any

import loads
from batchadvisor.probes.process.endings import WorkerGone
from batchadvisor.probes.process.orders import RunTrial
from batchadvisor.probes.process.supervisor import Worker
from batchadvisor.records import Trial, TrialRequest
from batchadvisor.spread import spread_of
from common import RESULTS, Bench, Results, header, interval, say, table
from under_load import SCRIPTS, STEPS_BETWEEN_BURSTS

WINDOWS = ("quiet", "quiet again", "stopped", "busy")
PRECISION = 0.02
"""Relative half-width at which a window ends."""
MIN_SAMPLE_S = 0.02
"""Shorter steps are averaged in groups, as a run does."""
MIN_TIME_S = 2.0
LIMIT_S = 40.0


def measure(name: str, num_rounds: int, threads: int | None, results: Results) -> None:
    """So many rounds of one script, in one process."""
    path, own, _ = SCRIPTS[name]
    part = results.data["scripts"].setdefault(name, {"batch_size": own, "rounds": []})
    generator = random.Random(name)
    variables = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    with Bench(path, [], "cpu", variables) as bench, bench.worker() as worker:
        worker.discover()
        step_s = _window(worker, own, 0)["step_s"]  # the first one warms up, and says how long
        ordinal = 1
        for number in range(num_rounds):
            order = generator.sample(WINDOWS, len(WINDOWS))
            row: dict[str, Any] = {"order": order, "load": os.getloadavg()[0]}
            for window in order:
                pause_s = STEPS_BETWEEN_BURSTS * step_s
                bursts = loads.Bursts(lambda: [worker.pid], pause_s, ordinal)
                with (
                    loads.neighbours(window == "busy"),
                    bursts if window == "stopped" else contextlib.nullcontext(),
                ):
                    row[window] = _window(worker, own, ordinal)
                row[window]["num_stops"] = bursts.count
                ordinal += 1
            part["rounds"].append(row)
            results.save()
            seconds = ", ".join(f"{window} {1e3 * row[window]['step_s']:.2f}" for window in WINDOWS)
            say(f"{name}, round {number + 1}: {seconds} ms")


def _window(worker: Worker, size: int, ordinal: int) -> dict[str, Any]:
    """The step time of one timed window and how it was found, as plain data.

    Raises:
        WorkerGone: the script ended, or the window had no step time.
    """
    order = RunTrial(
        request=TrialRequest(batch_size=size, kind="timed"),
        ordinal=ordinal,
        precision=PRECISION,
        min_sample_s=MIN_SAMPLE_S,
        min_time_s=MIN_TIME_S,
        time_limit_s=LIMIT_S,
    )
    trial = worker.ask(order).trial
    if not isinstance(trial, Trial) or trial.step_s is None or trial.quality is None:
        raise WorkerGone("crashed", f"no step time: {trial.outcome} {trial.detail}")
    quality = trial.quality
    return {
        "step_s": trial.step_s.median,
        "num_steps": quality.num_steps,
        "num_disturbed": quality.num_disturbed,
        "method": quality.method,
    }


def report(data: dict[str, Any]) -> str:
    """The printed table."""
    lines = header(data, "Clean steps of windows that were stopped now and then, and of quiet ones")
    rows = []
    for name, part in data["scripts"].items():
        rounds = part["rounds"]
        if not rounds:
            continue
        for kind in WINDOWS:
            windows = [row[kind] for row in rounds]
            ratios = [row[kind]["step_s"] / row["quiet"]["step_s"] for row in rounds]
            num_disturbed = sum(window["num_disturbed"] for window in windows)
            rows.append((
                f"{name} {part['batch_size']}", kind,
                interval(spread_of([window["step_s"] for window in windows]), 1e3, 2),
                "-" if kind == "quiet" else interval(spread_of(ratios)),
                "-" if kind == "quiet" else f"{max(ratios, key=lambda r: abs(log(r))):.3f}",
                sum(window["num_stops"] for window in windows),
                f"{num_disturbed} of {sum(window['num_steps'] for window in windows)}",
                f"{sum(window['method'] == 'clean steps' for window in windows)} of {len(rounds)}",
            ))  # fmt: skip
    headings = ("script, batch", "window", "step ms", "over quiet", "worst round", "stops",
                "disturbed steps", "by clean steps")  # fmt: skip
    lines += [table(headings, rows), "", "Medians over the rounds, with their 95 % intervals."]
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scripts", default="flat,own_is_best", help="by name, commas")
    parser.add_argument("--rounds", type=int, default=10, help="of each script (%(default)s)")
    parser.add_argument("--threads", type=int, help="that compute; by default one for each core")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument("--no-results", action="store_true", help="print only")
    options = parser.parse_args()
    names = options.scripts.split(",")
    if unknown := sorted(set(names) - SCRIPTS.keys()):
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(SCRIPTS)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the worker is ended too
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` has it ignored
    results = Results(None if options.no_results else options.results, "clean-steps")
    results.data |= {"threads": options.threads, "scripts": {}}
    state = "interrupted"
    try:
        for name in names:
            measure(name, options.rounds, options.threads, results)
        state = "finished"
    except KeyboardInterrupt:
        say("interrupted")
    except WorkerGone as gone:
        state = f"{gone.outcome}: {gone.detail}"
    results.data["state"] = state
    results.finish(report(results.data))
    sys.exit(0 if state == "finished" else 1)


if __name__ == "__main__":
    main()
