"""The whole `batchadvisor run` on a script, against an exhaustive sweep of batch sizes.

    python bench/sweep.py examples/char_gpt.py
    python bench/sweep.py --max 512 --goal throughput train.py --its-own-option

Our options stand before the script, as for `batchadvisor run`; everything after it is its own.

The sweep measures every size of a grid (each 1.15 times the one before) in a fresh process, with
the tool's own windows; runs and parts of the sweep alternate, and a sweep's sizes come in random
order, so that slow drift of the machine hits everything alike. At the end the recommended sizes
and the best of the grid are measured again in one process, a step each in turn.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
from batchadvisor.spread import spread_of
from common import RESULTS, Bench, Results, header, interval, say, scratch_folder, slug, table
from curve import RATIO, grid, knee_of, medians, smoothed, within_one_step

TOLERANCE = 0.05
PAST_KNEE = 3
"""How far beyond the recommendations the grid reaches by default."""
SEED = 0


class Sweep:
    """One benchmark: keeps all that it measured in `results.data` as it goes."""

    def __init__(self, options: argparse.Namespace, results: Results, bench: Bench) -> None:
        self._options = options
        self._results = results
        self._bench = bench
        self._time_limit_s = max(1.0, min(30.0, options.budget / 16))  # as session/run.py
        self.data = results.data
        self._generator = random.Random(SEED)
        self.data["settings"] = settings(options)
        self.data |= {"runs": [], "grid": [], "sweep": [], "pairs": []}

    def measure_all(self) -> None:
        """Runs, interleaved with parts of the sweeps; then the pairs."""
        todo: list[tuple[int, int]] = []
        for number in range(self._options.repeats):
            self._run(number)
            self._extend(todo)
            for _ in range(-(-len(todo) // (self._options.repeats - number))):
                self._size(*todo.pop(0))
        self._measure_pairs()

    def _extend(self, todo: list[tuple[int, int]]) -> None:
        """Puts into `todo` what the grid lacks, in random order, sweep after sweep."""
        known = self.data["grid"]
        wanted = grid(self._options.max or self._default_max())
        new = [size for size in wanted if size not in known]
        if not new:
            return
        self.data["grid"] = sorted([*known, *new])
        todo += [(sweep, size) for sweep in range(self._options.sweeps) for size in new]
        self._generator.shuffle(todo)
        todo.sort(key=lambda pair: pair[0])
        say(f"{len(self.data['grid'])} sizes up to {wanted[-1]}, {self._options.sweeps} times")

    def _run(self, number: int) -> None:
        options = self._options
        with scratch_folder() as folder:
            command = [sys.executable, "-m", "batchadvisor", "run", "--json", "--quiet"]
            command += ["--goal", options.goal, "--budget", f"{options.budget}s"]
            command += ["--device", options.device, "-o", f"{folder}/run", str(options.script)]
            start = time.monotonic()
            text, errors, code = call([*command, *options.arguments])
            wall_s = time.monotonic() - start
        if code or not text:
            last = (errors.strip().splitlines() or ["no output"])[-1]
            msg = f"run {number + 1} failed with exit code {code}: {last}"
            raise RuntimeError(msg)
        answer = json.loads(text)
        size = answer["advice"]["recommended"]["batch_size"]
        row = {"wall_s": wall_s, "recommended": size, "started_at_s": time.time() - wall_s}
        row |= {key: answer["advice"][key] for key in ("headline", "sureness")}
        record = answer["record"]
        record["command"] = [word.replace(folder, "FOLDER") for word in record["command"]]
        self.data["runs"].append(row | {"record": record})
        self._results.save()
        say(f"run {number + 1}/{options.repeats}: recommends {size} after {wall_s:.0f} s")

    def _default_max(self) -> int:
        """Well past every recommendation so far, within the data."""
        record = self.data["runs"][0]["record"]
        loaders = record["discovery"]["loaders"]
        primary = record["discovery"]["primary_loader"]
        num_samples = next(
            loader["num_samples"] for loader in loaders if loader["ordinal"] == primary
        )
        wanted = max(32, PAST_KNEE * max(run["recommended"] for run in self.data["runs"]))
        return min(wanted, num_samples or wanted)

    def _size(self, sweep: int, size: int) -> None:
        smaller = [
            earlier["batch_size"] for earlier in self.data["sweep"] if earlier["outcome"] != "ok"
        ]
        if smaller and size > min(smaller):
            return
        row = {"sweep": sweep, **self._bench.measure(size, time_limit_s=self._time_limit_s)}
        self.data["sweep"].append(row)
        self._results.save()
        shown = f"{row['samples_per_s']:.1f}/s" if row["samples_per_s"] else row["outcome"]
        say(f"sweep {sweep + 1}, batch {size}: {shown} in {row['wall_s']:.1f} s")

    def _measure_pairs(self) -> None:
        curve = medians(self.data["sweep"])
        if not curve:
            return
        smooth = smoothed(curve)
        best = {max(curve, key=curve.__getitem__), max(smooth, key=smooth.__getitem__)}
        recommended = {run["recommended"] for run in self.data["runs"]}
        sizes = sorted(best | recommended)
        self.data["best"], self.data["finalists"] = sorted(best), sizes
        if len(sizes) == 1:
            return
        say(f"pairs: {', '.join(map(str, sizes))} in turn, {self._options.pairs} rounds")
        turns = self._bench.in_turn(sizes, self._options.pairs)
        self.data["pairs"] = [
            dict(zip(map(str, turns.sizes), row, strict=True)) for row in turns.step_s
        ]
        self._results.save()


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """The options as plain data."""
    values = {key: value for key, value in vars(options).items() if key != "results"}
    values |= {"script": str(options.script), "ratio": RATIO, "tolerance": TOLERANCE}
    return values | {"seed": SEED}


def call(command: list[str]) -> tuple[str, str, int]:
    """Output, errors and exit code of a command; Ctrl-C ends it too, and its worker with it."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            text, errors = process.communicate()
        except BaseException:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
    return text, errors, process.returncode


# the report ----------------------------------------------------------------------------------


def ratio_of(pairs: list[dict[str, Any]], size: int, other: int) -> Any:
    """Throughput of one size over another's, round by round; `None` without a whole round.

    Args:
        pairs: seconds of a step by size, one a round.
    """
    if size == other:
        return spread_of([1.0])
    rows = [(row.get(str(size)), row.get(str(other))) for row in pairs]
    return spread_of(
        [(size / own_s) / (other / other_s) for own_s, other_s in rows if own_s and other_s]
    )


def recommendations(data: dict[str, Any], smooth: dict[int, float]) -> list[str]:
    """The rows about each recommended size, and how they agree."""
    runs = [run["recommended"] for run in data["runs"]]
    knee = knee_of(smooth, TOLERANCE)
    rows, kept = [], {}
    for size in sorted(set(runs)):
        ratios = [ratio_of(data["pairs"], size, other) for other in data.get("best", [])]
        ratios = [ratio for ratio in ratios if ratio is not None]
        # Two candidates for the best: the one that makes the recommendation look worse counts.
        worst = min(ratios, key=lambda ratio: ratio.median, default=None)
        kept[size] = {"share_of_best": msgspec.to_builtins(worst)}
        kept[size]["within_one_step_of_knee"] = within_one_step(size, knee)
        near = "yes" if within_one_step(size, knee) else f"no, {size / knee:.2f} x"
        rows.append((size, runs.count(size), interval(worst), near))
    data["summary"] = {"by_size": kept, "knee_of_sweep": knee, "recommended": runs}
    low, high = min(runs), max(runs)
    middle = statistics.median_low(runs)
    agree = all(within_one_step(middle, run) for run in runs)
    data["summary"] |= {"max_over_min": high / low, "within_one_step_of_middle": agree}
    best = ", ".join(map(str, data.get("best", []))) or "-"
    same = f"{'all' if agree else 'NOT all'} within one grid step of {middle}"
    ends = f"max/min {high / low:.3f}, {same}"
    return [
        table(("recommended", "runs", "share of best", "one grid step from the knee?"), rows),
        f"  best of the sweep: {best} (highest median, highest of the smoothed curve)",
        f"  smallest grid size within {TOLERANCE:.0%} of the smoothed best: {knee}",
        "  (the tool goes up to 1.25 x above it where the epoch would end in a harmful batch)",
        f"{len(runs)} runs recommended {', '.join(map(str, runs))}: {ends}",
        "",
    ]


def report(data: dict[str, Any]) -> str:
    """The printed table."""
    name = Path(data["settings"]["script"]).name
    lines = header(data, f"batchadvisor run --goal {data['settings']['goal']} on {name}")
    curve = medians(data["sweep"])
    if data["runs"] and curve:
        smooth = smoothed(curve)
        lines += recommendations(data, smooth)
        run_s = statistics.median(run["wall_s"] for run in data["runs"])
        by_sweep: dict[int, list[dict[str, Any]]] = {}
        for row in data["sweep"]:
            by_sweep.setdefault(row["sweep"], []).append(row)
        whole = [sweep for sweep in by_sweep.values() if len(sweep) >= len(curve)]
        if whole:
            sweep_s = statistics.median(sum(row["wall_s"] for row in sweep) for sweep in whole)
            data["summary"] |= {"run_s": run_s, "sweep_s": sweep_s}
            sweep_text = f"one sweep of {len(curve)} sizes {sweep_s:.0f} s"
            ratio = f"ratio {run_s / sweep_s:.2f}"
            lines += [f"wall time: one run {run_s:.0f} s, {sweep_text}, {ratio}", ""]
        top = max(smooth.values())
        rows = []
        for size, speed in curve.items():
            own = [row["samples_per_s"] for row in data["sweep"] if row["batch_size"] == size]
            each = " ".join(f"{value:.1f}" for value in own if value)
            share = f"{smooth[size] / top:.3f}"
            rows.append((size, f"{speed:.1f}", f"{smooth[size]:.1f}", share, each))
        lines.append(table(("batch", "samples/s", "smoothed", "of best", "each sweep"), rows))
    bad = sorted({(row["batch_size"], row["outcome"]) for row in data["sweep"]}) if curve else []
    lines += [f"batch {size}: {outcome}" for size, outcome in bad if outcome != "ok"]
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own")
    parser.add_argument("--max", type=int, help="largest size (default: 3 x the recommended size)")
    parser.add_argument("--goal", choices=["knee", "throughput"], default="knee")
    parser.add_argument("--budget", type=float, default=120.0, help="of a run (%(default)s s)")
    parser.add_argument("--repeats", type=int, default=5, help="whole runs (default %(default)s)")
    parser.add_argument("--sweeps", type=int, default=2, help="(default %(default)s)")
    parser.add_argument(
        "--pairs", type=int, default=200, help="rounds of the last comparison (%(default)s)"
    )
    parser.add_argument("--device", default="auto", help="as batchadvisor run takes it")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument("--no-results", action="store_true", help="print only")
    options = parser.parse_args()
    if min(options.repeats, options.sweeps) < 1 or not options.script.is_file():
        parser.error("needs a script, and at least one run and one sweep")
    theme = f"sweep-{slug(options.script.stem)}-{options.goal}"
    results = Results(None if options.no_results else options.results, theme)
    with Bench(options.script, options.arguments, options.device) as bench:
        sweep = Sweep(options, results, bench)
        try:
            sweep.measure_all()
            sweep.data["state"] = "finished"
        except KeyboardInterrupt:
            sweep.data["state"] = "interrupted"
        except RuntimeError as error:
            sweep.data["state"] = f"failed: {error}"
    results.finish(report(sweep.data))
    sys.exit(0 if sweep.data["state"] == "finished" else 1)


if __name__ == "__main__":
    main()
