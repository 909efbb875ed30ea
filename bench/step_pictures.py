"""How long the page with the pictures of steps takes for a large trace, and how large it gets.

    python bench/step_pictures.py --traces ../shared/traces

- a real trace is repeated until it holds two million events, as `trace_reader.py` does: the time to
  read it and the time to write the page of it, each in a process of its own, and how long Chromium
  takes until the page is painted;
- a made step of 20,000 events: the size of its page.

Needs Playwright and a Chromium (`--chromium`). Prints the numbers and, with `--save`, writes them
to `bench/results/`.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from painted import painted
from trace_reader import TRACE, enlarge

HERE = Path(__file__).parent
MAX_KB, MAX_TIMES, MAX_OPEN_MS = 300, 2.0, 1000
READ = (
    "import sys; from batchadvisor.probes.trace.reader import read_trace; read_trace(sys.argv[1])"
)


def step_of(num_events: int) -> list[dict[str, object]]:
    """One step of as many operators, launches and kernels, in equal parts."""
    events: list[dict[str, object]] = []

    def add(cat: str, name: str, start: float, length: float, **args: object) -> None:
        gpu = cat == "kernel"
        events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": 0 if gpu else 1, "tid": 7 if gpu else 1,
             "ts": start, "dur": length, "args": args}
        )  # fmt: skip

    count = num_events // 3
    for number in range(count):
        now = 12.0 * number
        work = {"correlation": number, "device": 0, "stream": 7 + number % 3}
        add("cpu_op", f"aten::operator_{number % 90}", now, 5.0 + number % 4)
        add("cuda_runtime", "cudaLaunchKernel", now + 1, 3.0, correlation=number)
        add(
            "kernel",
            f"void kernel_{number % 120}<float, 4>(float*)",
            now + 6,
            1.0 + number % 9,
            **work,
        )
    add("user_annotation", "ProfilerStep#1", 0.0, 12.0 * count)
    return events


def seconds(command: list[str]) -> tuple[float, float]:
    """CPU seconds of a process, and its wall-clock seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.perf_counter() - started


def opened(path: Path, chromium: str) -> float:
    """Milliseconds until the page is painted."""
    with painted(path, chromium, 1440) as (_, paint_ms):
        return paint_ms


def page_of(trace: Path, page: Path) -> list[str]:
    return [sys.executable, "-m", "batchadvisor", "analyze", str(trace), "-o", str(page), "--force"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--times", type=int, default=49)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        large, page = folder / "large.json", folder / "page.html"
        num_bytes = enlarge(options.traces / TRACE, large, options.times)
        reading = [
            seconds([sys.executable, "-c", READ, str(large)]) for _ in range(options.repeats)
        ]
        writing = [seconds(page_of(large, page)) for _ in range(options.repeats)]
        read, wrote = (statistics.median(cpu for cpu, _ in runs) for runs in (reading, writing))
        open_ms = statistics.median(opened(page, options.chromium) for _ in range(options.repeats))
        large_kb = page.stat().st_size / 1000
        step = folder / "step.json"
        step.write_text(json.dumps({"traceEvents": step_of(20_000)}))
        seconds(page_of(step, page))
        step_kb = page.stat().st_size / 1000
    times = wrote / read
    what = f"{TRACE} x {options.times}, {num_bytes / 1e6:.0f} MB"
    lines = [
        f"{what}; median of {options.repeats}, {platform.machine()}",
        f"reading the trace     {read:.1f} s of CPU",
        f"writing its page      {wrote:.1f} s of CPU, {times:.2f} times (limit {MAX_TIMES})",
        f"the page              {large_kb:.0f} kB",
        f"painted after         {open_ms:.0f} ms (limit {MAX_OPEN_MS} ms)",
        f"a step of 20,000 events: a page of {step_kb:.0f} kB (limit {MAX_KB} kB)",
    ]
    print("\n".join(lines))
    if options.save:
        (HERE / "results/step_pictures.txt").write_text("\n".join(lines) + "\n")
    return int(step_kb > MAX_KB or wrote > MAX_TIMES * read or open_ms > MAX_OPEN_MS)


if __name__ == "__main__":
    raise SystemExit(main())
