"""How soon the tab in TensorBoard answers for a log directory with many runs.

    python bench/plugin_start.py --runs 200 --repeats 3

Each run has the record of a real run and, for every size of it, a folder with an event file and a
trace of 30 kB (noise: the tab does not read traces to list them). `batchadvisor view` is started on
it in a new process each time. Taken are the first answers after TensorBoard listens: the listing,
headlines of the first 20 runs, the newest run whole; then the listing again. Prints a table,
`--save` writes it to `bench/results/`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from batchadvisor.advisor.advise import advise
from batchadvisor.session.recording.event_files import write_run_events
from batchadvisor.session.recording.store import read_record

HERE = Path(__file__).resolve().parent
RECORD = HERE.parent / "tests/data/records/char_gpt_cpu.json"
LIMIT_S = 1.0
TRACE_BYTES = 30_000
NUM_LINES = 20


def fill(folder: Path, num_runs: int) -> None:
    """Makes the runs; one is written by the tool's own code, the others are copies."""
    first = folder / "run-0000"
    first.mkdir(parents=True)
    shutil.copy(RECORD, first / "record.json")
    record = read_record(first)
    write_run_events(record, advise(record), first)
    for path in (first / "traces").iterdir():
        if path.is_dir():
            (path / "w0t0.1700000000000.pt.trace.json.gz").write_bytes(os.urandom(TRACE_BYTES))
    for number in range(1, num_runs):
        shutil.copytree(first, folder / f"run-{number:04d}")


def measured(folder: Path) -> dict[str, float]:
    """Seconds of one start."""
    command = [sys.executable, "-m", "batchadvisor", "view", str(folder), "--port", "0"]
    command += ["--pytorch-profiler-tab", "off"]
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder.parent) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            address = process.stdout.readline().split()[1].partition("#")[0]
            listens = time.perf_counter() - started
            base = f"{address}data/plugin/batch_advisor"
            listing_s, listing = ask(f"{base}/entries")
            keys = [entry["key"] for entry in json.loads(listing)["entries"]]
            lines_s, _ = ask(f"{base}/lines?" + "&".join(f"key={key}" for key in keys[:NUM_LINES]))
            show_s, _ = ask(f"{base}/show?key={keys[0]}")
            time.sleep(1.5)  # the listing is kept for a second
            again_s, _ = ask(f"{base}/entries")
        finally:
            process.terminate()
    return {
        "TensorBoard listens": listens,
        f"first listing of {len(keys)} runs": listing_s,
        f"{NUM_LINES} headlines": lines_s,
        "one run whole": show_s,
        "listing again": again_s,
    }


def ask(address: str) -> tuple[float, bytes]:
    """Seconds until the whole answer is there, and the answer."""
    started = time.perf_counter()
    with urllib.request.urlopen(address, timeout=60) as answer:
        data = answer.read()
    return time.perf_counter() - started, data


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "runs"
        fill(folder, options.runs)
        files = sum(len(names) for _, _, names in os.walk(folder))
        rows = [measured(folder) for _ in range(options.repeats)]
    medians = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    what = f"{options.runs} runs, {files} files, median of {options.repeats} starts"
    lines = [f"{what}, {platform.machine()}, Python {platform.python_version()}"]
    lines += [f"{name:<28}{seconds * 1e3:8.0f} ms" for name, seconds in medians.items()]
    lines.append(f"limit of the first listing  {LIMIT_S * 1e3:8.0f} ms")
    print("\n".join(lines))
    if options.save:
        (HERE / "results/plugin_start.txt").write_text("\n".join(lines) + "\n")
    return int(next(value for name, value in medians.items() if "first" in name) > LIMIT_S)


if __name__ == "__main__":
    raise SystemExit(main())
