"""What steering costs: optimizer steps per second of a script alone and of the same one steered.

    python bench/steering_cost.py                     # a very cheap step and both examples
    python bench/steering_cost.py my_script.py --pairs 40

Blocks of steps alternate: one process runs the script alone, with nothing but a hook that notes
when each optimizer step ended; the next runs it in batchadvisor's own worker, at the script's own
batch size, in timed windows one after the other. Both have the same hook, and the time between two
steps is compared, for steps inside timed windows. What happens between windows (memory read and
reset, the next request) is no part of it; the tool measures nothing there.

A second part does the same for one fetch from a DataLoader with nothing to load.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from batchadvisor.probes.supervisor import WorkerGone
from batchadvisor.records import Spread, TrialRequest
from batchadvisor.session.run import MIN_SAMPLE_S
from batchadvisor.spread import spread_of
from common import EXAMPLES, HERE, RESULTS, Bench, Results, header, interval, say, table
from stamped import read_stamps

PLAIN = HERE.parent / "tests" / "scripts" / "plain.py"
SCRIPTS = (PLAIN, EXAMPLES / "char_gpt.py", EXAMPLES / "resnet18_cifar10.py")
SKIPPED = 20
"""First steps of every process that do not count."""
TARGET = 0.01


class Alternation:
    """Blocks of one program, alone and steered.

    Args:
        command: the program and its arguments; it writes to BENCH_STAMPS.
        num_steps: in each block, after the skipped ones.
    """

    def __init__(self, command: Sequence[Any], num_steps: int, device: str) -> None:
        program, *arguments = [str(one) for one in command]
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

    def steered(self) -> tuple[list[float], list[int], list[float]]:
        """The same under steering, which of them are inside windows, and the tool's own times."""
        self._stamps.unlink(missing_ok=True)
        self._bench.environment = self._environment()
        num_before = 0

        def progress(message: Any) -> None:
            nonlocal num_before
            if message.phase == "discovering":
                num_before = message.num_steps

        inside: list[int] = []
        own: list[float] = []
        with self._bench.worker(progress) as worker:
            discovery, _ = worker.discover()
            request = TrialRequest(batch_size=discovery.native_batch_size, kind="timed")
            position = num_before
            for ordinal in range(10_000):
                trial, steps = worker.run(
                    request,
                    ordinal,
                    precision=0.0,  # never narrow enough: the window is as long as it can be
                    min_sample_s=MIN_SAMPLE_S,
                    time_limit_s=60.0,
                )
                position += trial.num_warmup_steps
                # The fetch before a window's first timed step still belongs to its warm-up.
                inside += range(position + 1, position + len(steps))
                own += [one.step_s for one in steps]
                position += len(steps)
                if len(inside) >= self._num_steps + SKIPPED:
                    break
        counted = [one for one in inside if one > SKIPPED]
        return self._noted(), counted[: self._num_steps], own[: self._num_steps]

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
    stamps: bool,
    data: dict[str, Any],
    results: Results,
) -> None:
    """Measures pairs, in turn alone first and steered first; keeps them in `data` as it goes.

    Args:
        stamps: the program notes points in time, not durations.
    """
    for number in range(num_pairs):
        row: dict[str, Any] = {}
        for kind in ("alone", "steered") if number % 2 == 0 else ("steered", "alone"):
            if kind == "alone":
                noted = alternation.alone()
                chosen = list(range(SKIPPED + 1, len(noted)))
            else:
                noted, chosen, row["own_s"] = alternation.steered()
                chosen = [one for one in chosen if one < len(noted)]
            row[f"{kind}_s"] = [
                noted[one] - noted[one - 1] if stamps else noted[one] for one in chosen
            ]
        data["pairs"].append(row)
        results.save()
        alone, steered = (statistics.median(row[f"{one}_s"]) for one in ("alone", "steered"))
        say(
            f"{data['name']} {number + 1}/{num_pairs}: alone {alone * 1e6:.1f} us, "
            f"steered {steered * 1e6:.1f} us ({steered / alone - 1:+.2%})"
        )


def summary(pairs: Sequence[dict[str, Any]]) -> dict[str, Spread]:
    """Medians of the blocks, and their ratios and differences pair by pair."""
    alone, steered, own = (
        [statistics.median(one[kind]) for one in pairs]
        for kind in ("alone_s", "steered_s", "own_s")
    )
    both = list(zip(alone, steered, strict=True))
    values = {
        "alone_s": alone,
        "steered_s": steered,
        "own_s": own,
        "cost": [two / one - 1 for one, two in both],
        "own_bias": [two / one - 1 for one, two in zip(alone, own, strict=True)],
        "difference_s": [two - one for one, two in both],
    }
    found = {name: spread_of(some) for name, some in values.items()}
    return {name: one for name, one in found.items() if one is not None}


def verdict(cost: Spread) -> str:
    """Whether the target is met, as far as the interval tells."""
    if cost.high < TARGET:
        return "yes"
    return "NO" if cost.low >= TARGET else "not certain"


def report(data: dict[str, Any]) -> str:
    """The printed tables."""
    lines = header(data, "The cost of steering")
    rows, fetch_lines = [], []
    for one in data["scripts"]:
        if not one["pairs"]:
            continue
        found = summary(one["pairs"])
        one["summary"] = msgspec.to_builtins(found)
        rows.append(
            (
                one["name"],
                len(one["pairs"]),
                interval(found["alone_s"], 1e3),
                interval(found["steered_s"], 1e3),
                interval(found["difference_s"], 1e6, 1),
                interval(found["cost"], 100, 2),
                verdict(found["cost"]),
                interval(found["own_bias"], 100, 2),
            )
        )
    if rows:
        headings = ("script", "pairs", "alone ms", "steered ms", "more us", "cost %", "under 1 %?")
        lines += [
            "Time between two optimizer steps: median of each block, then median over the blocks",
            "with its order-statistic interval (90 % from five blocks on). 'more', 'cost' and",
            "'own' are taken pair by pair; 'own' is what the tool says a step takes, over alone.",
            "",
            table((*headings, "own - 1 %"), rows),
            "",
        ]
    fetch = data["fetch"]
    if fetch["pairs"]:
        found = summary(fetch["pairs"])
        fetch["summary"] = msgspec.to_builtins(found)
        more = found["difference_s"]
        fetch_lines = [
            "One fetch of 16 integers from a DataLoader, everything that the tool does at a step",
            "boundary included:",
            f"  alone    {interval(found['alone_s'], 1e6, 1)} us",
            f"  steered  {interval(found['steered_s'], 1e6, 1)} us",
            f"  more     {interval(more, 1e6, 1)} us",
            f"  1 % of a step is this much for steps of {more.median / TARGET * 1e3:.1f} ms.",
        ]
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
        help="default: a cheap one and both examples",
    )
    parser.add_argument("--pairs", type=int, default=20, help="of blocks (default %(default)s)")
    parser.add_argument(
        "--steps", type=int, default=120, help="steps in a block (default %(default)s)"
    )
    parser.add_argument(
        "--fetch-pairs", type=int, default=10, help="for the fetch; 0 for none (%(default)s)"
    )
    parser.add_argument("--device", default="auto", help="as batchadvisor run takes it")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument("--no-results", action="store_true", help="print only")
    options = parser.parse_args()
    results = Results(None if options.no_results else options.results, "steering-cost")
    data = results.data
    data["settings"] = {"pairs": options.pairs, "steps": options.steps, "skipped": SKIPPED}
    data["scripts"] = [{"name": one.name, "pairs": []} for one in options.scripts]
    data["fetch"] = {"name": "fetch", "pairs": []}
    try:
        for script, part in zip(options.scripts, data["scripts"], strict=True):
            command = (HERE / "stamped.py", script.resolve())
            with Alternation(command, options.steps, options.device) as blocks:
                pairs_of(blocks, options.pairs, stamps=True, data=part, results=results)
        with Alternation((HERE / "trivial_fetch.py",), 600, options.device) as blocks:
            part = data["fetch"]
            pairs_of(blocks, options.fetch_pairs, stamps=False, data=part, results=results)
        data["state"] = "finished"
    except KeyboardInterrupt:
        data["state"] = "interrupted"
    except (WorkerGone, RuntimeError) as error:
        data["state"] = f"failed: {error}"
    results.finish(report(data))
    sys.exit(0 if data["state"] == "finished" else 1)


if __name__ == "__main__":
    main()
