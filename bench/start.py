"""How long a run takes to start, and how much of a processor batchadvisor itself takes meanwhile.

    python bench/start.py                        # both examples
    python bench/start.py my_script.py --runs 9

Whole runs of `batchadvisor run` on a terminal (a pseudo one, so that the live display is drawn),
with a process that stands by and without one, in turn. Three things are read from each:

- from typing to the first trial: Python, our imports, the script's process with its import of
  torch, the script's own start, the discovery of its loop;
- from the end of the search to the first trial of the confirmation, in a fresh process: the end of
  the process before, and the same start again;
- the CPU time of the command's own process, all its threads, while trials ran: a share of one core.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from batchadvisor.session.recording.store import read_record
from common import EXAMPLES, HERE, RESULTS, Results, header, say, table

SCRIPTS = (EXAMPLES / "char_gpt.py", EXAMPLES / "resnet18_cifar10.py")
KINDS = ("standby", "cold")
LIMIT_PCT = 1.0
"""Of one core: more of the machine than this we do not want to take while steps are timed."""


def one_run(script: Path, kind: str, budget_s: float, device: str) -> dict[str, Any]:
    """One run, as plain data."""
    with tempfile.TemporaryDirectory(prefix="batchadvisor-bench-") as folder:
        stamps = Path(folder, "stamps.jsonl")
        command = [sys.executable, str(HERE / "stamped_run.py"), str(stamps), kind, "run"]
        command += ["--device", device, "--budget", f"{budget_s:g}s", "-o", "out", str(script)]
        load = os.getloadavg()[0]
        typed = time.time()
        on_a_terminal(command, folder)
        rows = [json.loads(line) for line in stamps.read_text().splitlines()]
        record = read_record(Path(folder, "out"))
    search = [row for row in rows if row["purpose"] == "search"]
    fresh = [row for row in rows if row["worker"] and row["purpose"] == "confirm"]
    before = [row for row in rows if fresh and row["began"] < fresh[0]["began"]]
    return {
        "kind": kind,
        "load": load,
        "first_trial_s": search[0]["began"] - typed if search else None,
        "confirmation_s": fresh[0]["began"] - before[-1]["ended"] if before else None,
        "num_trials": len(rows),
        "tool_cpu_pct": [
            trial.tool_cpu_pct for trial in record.trials if trial.tool_cpu_pct is not None
        ],
        "trial_s": [trial.elapsed_s for trial in record.trials if trial.tool_cpu_pct is not None],
        "stop_reason": record.stop_reason,
    }


def on_a_terminal(command: Sequence[str], folder: str) -> None:
    """Runs a command to its end; what it draws is read, as a terminal reads it, and dropped.

    Raises:
        RuntimeError: it failed.
    """
    ours, theirs = pty.openpty()
    variables = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(
        command, cwd=folder, env=variables, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        drawn = bytearray()
        reader = threading.Thread(target=drain, args=(ours, drawn), daemon=True)
        reader.start()
        process.wait()
        reader.join(10)
    if process.returncode:
        msg = f"exit code {process.returncode}: {drawn[-500:].decode(errors='replace')}"
        raise RuntimeError(msg)


def drain(descriptor: int, into: bytearray) -> None:
    """Reads to the end."""
    with open(descriptor, "rb", buffering=0) as terminal:
        while True:
            try:
                data = terminal.read(1 << 16)
            except OSError:  # the other side is closed: how a terminal ends
                return
            if not data:
                return
            into += data


def report(data: dict[str, Any]) -> str:
    """The printed tables."""
    lines = header(data, "From typing to the first trial, and from the search to its confirmation")
    headings = ("script", "second process", "first trial", "confirmation", "own CPU", "worst trial")
    rows = []
    for part in data["scripts"]:
        for kind in KINDS:
            runs = [run for run in part["runs"] if run["kind"] == kind]
            shares = [share for run in runs for share in run["tool_cpu_pct"]]
            rows.append(
                (
                    part["name"],
                    "stands by" if kind == "standby" else "started then",
                    seconds(run["first_trial_s"] for run in runs),
                    seconds(run["confirmation_s"] for run in runs),
                    f"{own_share(runs):.2f} %" if shares else "-",
                    f"{max(shares):.2f} %" if shares else "-",
                )
            )
    lines += [
        table(headings, rows),
        "",
        "Medians of the runs, with the shortest and the longest. Own CPU: of the command's own",
        "process while trials ran, of one core, all trials together and in the trial with most of",
        f"it; below {LIMIT_PCT:g} % is what we ask of ourselves.",
    ]
    return "\n".join(lines)


def own_share(runs: Sequence[dict[str, Any]]) -> float:
    """CPU time of the command over the time of all trials, in percent."""
    pairs = [pair for run in runs for pair in zip(run["tool_cpu_pct"], run["trial_s"], strict=True)]
    whole: float = sum(lasted for _, lasted in pairs)
    return sum(share * lasted for share, lasted in pairs) / whole


def seconds(values: Any) -> str:
    """`4.1 s [3.9, 4.4]`."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    return f"{statistics.median(known):.2f} s [{min(known):.2f}, {max(known):.2f}]"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scripts", nargs="*", type=Path, default=SCRIPTS, help="default: both")
    parser.add_argument("--runs", type=int, default=5, help="of each kind (%(default)s)")
    parser.add_argument("--budget", type=float, default=20.0, help="of a run, s (%(default)s)")
    parser.add_argument("--device", default="auto", help="as batchadvisor run takes it")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument("--no-results", action="store_true", help="print only")
    options = parser.parse_args()
    results = Results(None if options.no_results else options.results, "start")
    data = results.data
    data["settings"] = {"runs": options.runs, "budget_s": options.budget}
    data["scripts"] = [{"name": script.name, "runs": []} for script in options.scripts]
    try:
        for number in range(options.runs):
            for script, part in zip(options.scripts, data["scripts"], strict=True):
                for kind in KINDS if number % 2 else KINDS[::-1]:
                    run = one_run(script.resolve(), kind, options.budget, options.device)
                    part["runs"].append(run)
                    results.save()
                    say(f"{script.name} {number + 1}/{options.runs}, {kind}: {run}")
        data["state"] = "finished"
    except KeyboardInterrupt:
        data["state"] = "interrupted"
    except RuntimeError as error:
        data["state"] = f"failed: {error}"
    results.finish(report(data))
    sys.exit(0 if data["state"] == "finished" else 1)


if __name__ == "__main__":
    main()
