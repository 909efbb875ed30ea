"""What torch's threads cost beside busy processes, and what their environment changes.

    python bench/spinning_threads.py
    python bench/spinning_threads.py --loads 1 --passes 5

A script of planted/ trains by itself at its own size, as in regret.py, beside so many busy
processes: as it is, with threads that give their core away while they wait (OMP_WAIT_POLICY), with
threads that stay on one core each (OMP_PROC_BIND), and with one thread. The kinds take turns.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
from typing import Any
from unittest.mock import patch

import loads
from common import RESULTS, Results, header, say, table
from regret import SCRIPTS, on_cpu

VARIABLES: dict[str, dict[str, str]] = {
    "as it is": {},
    "OMP_WAIT_POLICY=PASSIVE": {"OMP_WAIT_POLICY": "PASSIVE"},
    "OMP_PROC_BIND=true": {"OMP_PROC_BIND": "true"},
    "OMP_NUM_THREADS=1": {"OMP_NUM_THREADS": "1"},
}
MEASURED = ("perceptron", "cnn", "lstm")
"""Of regret.py's scripts."""


def report(data: dict[str, Any]) -> str:
    """Samples per second, medians, and how many times those of the script as it is."""
    lines = []
    for row in data["rows"]:
        usual = statistics.median(row["rates"]["as it is"] or [math.nan])
        cells = [row["script"], row["busy"]]
        for kind in VARIABLES:
            rate = statistics.median(row["rates"][kind] or [math.nan])
            cells.append(f"{rate:.4g} x{rate / usual:.3g}")
        lines.append(cells)
    headings = ["samples/s", "busy processes", *VARIABLES]
    title = "threads of torch beside busy processes"
    return "\n".join([*header(data, title), table(headings, lines)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--loads", type=int, nargs="*", default=[0, 1, 3])
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="Of one rate.")
    options = parser.parse_args()
    results = Results(RESULTS, "spinning-threads")
    rows = results.data.setdefault("rows", [])
    cleared = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    for busy in options.loads:
        for name in MEASURED:
            script = SCRIPTS[name]
            rates: dict[str, list[float]] = {kind: [] for kind in VARIABLES}
            for _ in range(options.passes):
                for kind, variables in VARIABLES.items():
                    environment = {**cleared, **variables}
                    with loads.neighbours(busy), patch.dict(os.environ, environment, clear=True):
                        rate = on_cpu(script, [script.own], options.seconds)[str(script.own)]
                    if rate is not None:
                        rates[kind].append(rate)
            rows.append({"script": name, "size": script.own, "busy": busy, "rates": rates})
            say(f"{name} beside {busy}: {rates}")
            results.save()
    results.data["state"] = "finished"
    results.finish(report(results.data))


if __name__ == "__main__":
    main()
