"""How precisely two batch sizes are compared in a minute: in long blocks, in short ones, in turn.

    python bench/turns.py examples/char_gpt.py
    python bench/turns.py --sizes 8,16 --minutes 4 train.py --its-own-option

The script runs in batchadvisor's own worker. Two sizes alternate in blocks of so many steps, each
after one that does not count; the lengths of the blocks take turns as well. The standard deviation
of the log ratio of neighbouring blocks, over the root of how many fit into a minute, is what the
ratio is still uncertain by after a minute.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from batchadvisor.probes.process.endings import WorkerGone
from batchadvisor.probes.process.orders import RunTrial
from batchadvisor.records import TrialRequest, Turns, TurnsPlan
from common import RESULTS, Bench, Results, header, say, slug, table

LENGTHS = (30, 6, 1)
"""Steps of a block."""
ROUND_STEPS = 60
"""Steps of a size before the next length of blocks has its turn."""


def measure(bench: Bench, sizes: tuple[int, ...], seconds: float, data: dict[str, Any]) -> None:
    """All lengths in turn for so long; rows of seconds a step go to `data` by length."""
    with bench.worker() as worker:
        worker.discover()
        end = time.monotonic() + seconds
        ordinal = 0
        while time.monotonic() < end:
            for length in LENGTHS:
                plan = TurnsPlan(
                    sizes=sizes,
                    num_steps=(length,) * len(sizes),
                    num_rounds=ROUND_STEPS // length,
                )
                request = TrialRequest(batch_size=max(sizes), kind="turns", turns=plan)
                order = RunTrial(
                    request=request, ordinal=ordinal, precision=0.0, time_limit_s=600.0
                )
                trial = worker.ask(order).trial
                assert trial.turns is not None
                part = data["lengths"][str(length)]
                part["rows"] += trial.turns.step_s
                part["elapsed_s"] += trial.elapsed_s
                ordinal += 1
            say(f"{ordinal} blocks of rounds, {max(0.0, end - time.monotonic()):.0f} s left")


def uncertainty(turns: Turns, elapsed_s: float) -> tuple[float, float, float]:
    """The ratio of the two throughputs, the deviation of one log ratio, and what is left after a
    minute.
    """
    small, large = turns.sizes
    ratios = [
        math.log((small / small_s) / (large / large_s))
        for small_s, large_s in turns.step_s
        if small_s and large_s
    ]
    deviation = statistics.stdev(ratios)
    a_minute = 60 * len(ratios) / elapsed_s
    return math.exp(statistics.fmean(ratios)), deviation, deviation / math.sqrt(a_minute)


def report(data: dict[str, Any]) -> str:
    """The printed table."""
    sizes = tuple(data["settings"]["sizes"])
    name = Path(data["settings"]["script"]).name
    lines = header(data, f"Batch sizes {sizes[0]} and {sizes[1]} of {name}, compared for a minute")
    rows = []
    for length, part in data["lengths"].items():
        turns = Turns(sizes=sizes, step_s=tuple(map(tuple, part["rows"])))
        ratio, deviation, left = uncertainty(turns, part["elapsed_s"])
        part["ratio"], part["deviation"], part["after_a_minute"] = ratio, deviation, left
        rows.append(
            (
                f"{length} steps",
                len(turns.step_s),
                f"{ratio:.3f}",
                f"{deviation:.1%}",
                f"{left:.2%}",
            )
        )
    headings = ("blocks of", "pairs", "ratio", "deviation of one", "uncertain after a minute")
    return "\n".join([*lines, table(headings, rows)])


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own")
    parser.add_argument("--sizes", default="32,64", help="two (%(default)s)")
    parser.add_argument("--minutes", type=float, default=3.0, help="in all (%(default)s)")
    parser.add_argument("--device", default="auto", help="as batchadvisor run takes it")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument("--no-results", action="store_true", help="print only")
    options = parser.parse_args()
    sizes = tuple(sorted(int(part) for part in options.sizes.split(",")))
    if len(sizes) != 2 or not options.script.is_file():
        parser.error("needs a script and two sizes")
    theme = f"turns-{slug(options.script.stem)}"
    results = Results(None if options.no_results else options.results, theme)
    data = results.data
    data["settings"] = {
        "script": str(options.script),
        "sizes": sizes,
        "minutes": options.minutes,
    }
    data["lengths"] = {str(length): {"rows": [], "elapsed_s": 0.0} for length in LENGTHS}
    with Bench(options.script, options.arguments, options.device) as bench:
        try:
            measure(bench, sizes, 60 * options.minutes, data)
            data["state"] = "finished"
        except KeyboardInterrupt:
            data["state"] = "interrupted"
        except WorkerGone as gone:
            data["state"] = f"failed: {gone.detail}"
    results.finish(report(data))
    sys.exit(0 if data["state"] == "finished" else 1)


if __name__ == "__main__":
    main()
