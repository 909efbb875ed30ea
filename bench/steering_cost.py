"""What steering costs: optimizer steps per second of a script alone and of the same one steered.

    python bench/steering_cost.py                     # both examples
    python bench/steering_cost.py my_script.py --starts 20

Two processes live side by side and run in turn for a tenth of a second: one has the script alone,
with nothing but a hook that notes when each optimizer step ended; the other has it in
batchadvisor's own worker, at the script's own batch size, inside a window. Both have the same hook,
and the time between two steps is compared, slice by slice (slices.py). What happens between windows
(memory read and reset, the next request) is no part of it; the tool measures nothing there.

Two processes of one program differ by a percent or two for as long as they live, so that many pairs
are started, and the interval is that of the pairs. Every second pair is the script against itself:
what it shows is what the machine can resolve.

A second part compares one fetch from a DataLoader with nothing to load, in blocks of steps.
"""

from __future__ import annotations

import argparse
import math
import signal
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from batchadvisor.probes.process.endings import WorkerGone
from batchadvisor.probes.process.orders import RunTrial
from batchadvisor.records import Spread, TrialRequest
from batchadvisor.session.run import MIN_SAMPLE_S
from batchadvisor.spread import spread_of
from common import (
    EXAMPLES,
    HERE,
    RESULTS,
    Bench,
    Results,
    header,
    interval,
    say,
    table,
    trimmed_mean,
)
from slices import SKIPPED, Slices
from stamped import read_stamps

SCRIPTS = (EXAMPLES / "char_gpt.py", EXAMPLES / "resnet18_cifar10.py")
KINDS = ("steered", "alone")
"""What the second process is; the first is always alone."""
TRIMMED = 0.1
"""Share of the ratios that is left out on either side."""
T90 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771)
"""Student's t for 90 %, by degrees of freedom from 1 on; the last stands for all larger ones."""
TARGET = 0.01
FEWEST = 20
"""Pairs of slices below which two processes say nothing."""


class Alternation:
    """Blocks of one program, alone and steered.

    Args:
        command: the program and its arguments; it writes to BENCH_STAMPS.
        num_steps: in each block, after the skipped ones.
    """

    def __init__(self, command: Sequence[Any], num_steps: int, device: str) -> None:
        program, *arguments = [str(word) for word in command]
        self._bench = Bench(Path(program), arguments, device)
        self._command = [sys.executable, program, *arguments]
        self._stamps = self._bench.scratch.path / "stamps"
        self._num_steps = num_steps

    def __enter__(self) -> Alternation:  # noqa: PYI034  Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self._bench.scratch.remove()

    def alone(self) -> list[float]:
        """What the script noted when nothing else was in its process."""
        self._stamps.unlink(missing_ok=True)
        wanted = SKIPPED + self._num_steps + 1
        with self._bench.log.open("ab") as log:
            subprocess.run(
                self._command,
                env=self._environment() | {"BENCH_NUM_STEPS": str(wanted)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
            )
        return self._noted()

    def steered(self) -> tuple[list[float], list[int]]:
        """The same under steering, and which of them are inside windows."""
        self._stamps.unlink(missing_ok=True)
        self._bench.environment = self._environment()
        num_before = 0

        def progress(message: Any) -> None:
            nonlocal num_before
            if message.phase == "discovering":
                num_before = message.num_steps

        inside: list[int] = []
        with self._bench.worker(progress) as worker:
            discovery, _ = worker.discover()
            request = TrialRequest(batch_size=discovery.native_batch_size, kind="timed")
            position = num_before
            for ordinal in range(10_000):
                order = RunTrial(
                    request=request,
                    ordinal=ordinal,
                    precision=0.0,  # never narrow enough: the window is as long as it can be
                    min_sample_s=MIN_SAMPLE_S,
                    time_limit_s=60.0,
                )
                result = worker.ask(order)
                trial, steps = result.trial, result.steps
                position += trial.num_warmup_steps
                # The fetch before a window's first timed step still belongs to its warm-up.
                inside += range(position + 1, position + len(steps))
                position += len(steps)
                if len(inside) >= self._num_steps + SKIPPED:
                    break
        counted = [index for index in inside if index > SKIPPED]
        return self._noted(), counted[: self._num_steps]

    def _environment(self) -> dict[str, str]:
        return self._bench.environment | {"BENCH_STAMPS": str(self._stamps)}

    def _noted(self) -> list[float]:
        noted = read_stamps(self._stamps)
        if len(noted) <= SKIPPED:
            lines = self._bench.log.read_text(errors="replace").strip().splitlines()
            msg = f"only {len(noted)} steps: {lines[-1] if lines else 'no output'}"
            raise RuntimeError(msg)
        return noted


def pairs_of(
    alternation: Alternation,
    num_pairs: int,
    *,
    data: dict[str, Any],
    results: Results,
) -> None:
    """Measures blocks, in turn alone first and steered first; keeps them in `data` as it goes."""
    for number in range(num_pairs):
        row: dict[str, Any] = {}
        for kind in ("alone", "steered") if number % 2 == 0 else ("steered", "alone"):
            if kind == "alone":
                noted = alternation.alone()
                chosen = list(range(SKIPPED + 1, len(noted)))
            else:
                noted, chosen = alternation.steered()
                chosen = [index for index in chosen if index < len(noted)]
            row[f"{kind}_s"] = [noted[index] for index in chosen]
        data["pairs"].append(row)
        results.save()
        alone, steered = (statistics.median(row[f"{name}_s"]) for name in ("alone", "steered"))
        say(
            f"{data['name']} {number + 1}/{num_pairs}: alone {alone * 1e6:.1f} us, "
            f"steered {steered * 1e6:.1f} us ({steered / alone - 1:+.2%})"
        )


def summary(pairs: Sequence[dict[str, Any]]) -> dict[str, Spread]:
    """Medians of the blocks, and their ratios and differences pair by pair."""
    alone, steered = (
        [statistics.median(pair[kind]) for pair in pairs] for kind in ("alone_s", "steered_s")
    )
    both = list(zip(alone, steered, strict=True))
    values = {
        "alone_s": alone,
        "steered_s": steered,
        "difference_s": [steered_s - alone_s for alone_s, steered_s in both],
    }
    spreads = {name: spread_of(some) for name, some in values.items()}
    return {name: spread for name, spread in spreads.items() if spread is not None}


def cost_of(starts: Sequence[dict[str, Any]], kind: str) -> Spread | None:
    """Second process over the first less one: mean of the starts of a kind, 90 % interval.

    Of each start the trimmed mean of the log ratios counts, as one value. `None` below two.
    """
    values = [
        trimmed_mean([math.log(row["second_s"] / row["first_s"]) for row in pairs], TRIMMED)[0]
        for pairs in (start["pairs"] for start in starts if start["kind"] == kind)
        if len(pairs) >= FEWEST
    ]
    if len(values) < 2:
        return None
    middle = statistics.fmean(values)
    error = statistics.stdev(values) / math.sqrt(len(values))
    reach = T90[min(len(values) - 1, len(T90)) - 1] * error
    return Spread(
        median=math.expm1(middle),
        low=math.expm1(middle - reach),
        high=math.expm1(middle + reach),
        num_samples=len(values),
        confidence=0.9,
    )


def step_ms(starts: Sequence[dict[str, Any]]) -> float:
    """Milliseconds a step of the script alone."""
    return 1e3 * statistics.median(row["first_s"] for start in starts for row in start["pairs"])


def verdict(cost: Spread) -> str:
    """Whether the target is met, as far as the interval tells."""
    if cost.high < TARGET:
        return "yes"
    return "NO" if cost.low >= TARGET else "not certain"


def report(data: dict[str, Any]) -> str:
    """The printed tables."""
    lines = header(data, "The cost of steering")
    rows, fetch_lines = [], []
    for script in data["scripts"]:
        spreads = {kind: cost_of(script["starts"], kind) for kind in KINDS}
        cost = spreads["steered"]
        if cost is None:
            continue
        script["cost"] = msgspec.to_builtins(spreads)
        rows.append(
            (
                script["name"],
                cost.num_samples,
                f"{step_ms(script['starts']):.1f}",
                interval(cost, 100, 2),
                verdict(cost),
                interval(spreads["alone"], 100, 2),
            )
        )
    if rows:
        headings = ("script", "starts", "step ms", "cost %", "under 1 %?", "against itself %")
        lines += [
            "Time between two optimizer steps. The cost is what the steered process takes longer",
            f"than the one alone, slice by slice ({TRIMMED:.0%} trimmed on either side): the mean",
            "of the starts of both with its 90 % interval.",
            "",
            table(headings, rows),
            "",
        ]
    fetch = data["fetch"]
    if fetch["pairs"]:
        spreads = summary(fetch["pairs"])
        fetch["summary"] = msgspec.to_builtins(spreads)
        more = spreads["difference_s"]
        fetch_lines = [
            "One fetch of 16 integers from a DataLoader, everything that the tool does at a step",
            "boundary included:",
            f"  alone    {interval(spreads['alone_s'], 1e6, 1)} us",
            f"  steered  {interval(spreads['steered_s'], 1e6, 1)} us",
            f"  more     {interval(more, 1e6, 1)} us",
        ]
        if more.median > 0:
            step = more.median / TARGET * 1e3
            fetch_lines.append(f"  1 % of a step is this much for steps of {step:.1f} ms.")
    return "\n".join([*lines, *fetch_lines])


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "scripts",
        nargs="*",
        type=Path,
        default=SCRIPTS,
        help="default: both examples",
    )
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="that two processes run (default %(default)s)"
    )
    parser.add_argument(
        "--starts", type=int, default=8, help="of two processes, of each kind (%(default)s)"
    )
    parser.add_argument(
        "--fetch-pairs", type=int, default=10, help="of blocks; 0 for none (%(default)s)"
    )
    parser.add_argument("--device", default="auto", help="as batchadvisor run takes it")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument("--no-results", action="store_true", help="print only")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the stopped process goes as well
    results = Results(None if options.no_results else options.results, "steering-cost")
    data = results.data
    data["settings"] = {
        "seconds": options.seconds,
        "starts": options.starts,
        "fetch_pairs": options.fetch_pairs,
    }
    data["scripts"] = [{"name": script.name, "starts": []} for script in options.scripts]
    data["fetch"] = {"name": "fetch", "pairs": []}
    try:
        for number in range(options.starts):
            for script, part in zip(options.scripts, data["scripts"], strict=True):
                for kind in KINDS if number % 2 else KINDS[::-1]:
                    with Slices(script, (), options.device, steered=kind == "steered") as slices:
                        pairs = slices.pairs(options.seconds)
                    part["starts"].append({"kind": kind, "pairs": pairs})
                    results.save()
                    say(f"{script.name} {number + 1}/{options.starts}, {kind}: {len(pairs)} pairs")
        with Alternation((HERE / "trivial_fetch.py",), 600, options.device) as blocks:
            part = data["fetch"]
            pairs_of(blocks, options.fetch_pairs, data=part, results=results)
        data["state"] = "finished"
    except KeyboardInterrupt:
        data["state"] = "interrupted"
    except (WorkerGone, RuntimeError) as error:
        data["state"] = f"failed: {error}"
    results.finish(report(data))
    sys.exit(0 if data["state"] == "finished" else 1)


if __name__ == "__main__":
    main()
