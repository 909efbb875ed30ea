"""What `batchadvisor estimate` costs for models that fit no machine at hand.

    python bench/estimate_large.py                  # 70 billion over 64 ranks, and 1 billion
    python bench/estimate_large.py --only windows

Two things are measured, each in processes of its own:

- `command`: the whole command for a model of 70 billion parameters that 64 ranks share (`--shard`):
  seconds on the clock, seconds of processors (user and system, all its processes), and memory: the
  most that its processes together held at once, sampled, and the sum of each one's own peak, which
  is never less than that. Pages that processes share are counted in each.
- `windows`: each step on fake tensors of a model of 1 billion parameters, as `estimate` orders it,
  on the clock and in seconds of the script's process. The first step of a variant makes the
  optimizer's state before the step that counts: two steps.

The models are Llama-like (large_llama.py). Seconds on the clock hold for a quiet machine only; the
seconds of processors depend less on what else runs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from batchadvisor.features.estimate.fake_loop import FakeLoop
from batchadvisor.records import Goal, Variant
from batchadvisor.reports.terminal.progress import NullDisplay
from batchadvisor.session.run import Run
from batchadvisor.session.setup.checked_options import COMMAND_LINE, checked_options
from common import HERE, RESULTS, Results, header, say, scratch_folder, table

SCRIPT = HERE / "large_llama.py"
GOALS = {"wall_s": 60.0, "peak_bytes": 4 << 30, "window_s": 1.0}
"""A minute and 4 GiB for the command, a second for a window."""
GPUS = "A100-80GB,H100"
VARIANTS = (
    Variant(),
    Variant(bf16=True),
    Variant(checkpointed=True),
    Variant(bf16=True, checkpointed=True),
)
EVERY_S = 0.05
TICKS = os.sysconf("SC_CLK_TCK")


def command(size: str, batch: int, length: int, ranks: int) -> dict[str, Any]:
    """The whole command, as plain data."""
    words = [sys.executable, "-m", "batchadvisor", "estimate", "--json", "--quiet"]
    words += ["--gpu", GPUS, "--shard", str(ranks), str(SCRIPT), size, str(batch), str(length)]
    load = os.getloadavg()[0]
    with scratch_folder() as folder:
        began = time.monotonic()
        process = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE)
        memory = Memory(process.pid)
        assert process.stdout is not None
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
        memory.stop()
    if process.returncode:
        sys.exit(f"estimate ended with exit code {process.returncode}")
    answer = json.loads(text)
    forecasts = [*answer["forecasts"], *answer["sharded"]]
    return {
        "size": size,
        "batch_size": batch,
        "length": length,
        "ranks": ranks,
        "num_parameters": answer["num_parameters"],
        "num_windows": sum(len(each["trials"]) for each in forecasts),
        "peaks": {
            f"{_named(each['variant'])} at {trial['batch_size']}": trial["peak_bytes"]
            for each in forecasts
            for trial in each["trials"]
        },
        "wall_s": wall_s,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "together_bytes": memory.most_bytes,
        "peak_bytes": sum(memory.peaks.values()),
        "load": load,
    }


def _named(variant: dict[str, Any]) -> str:
    words = ["bf16"] * variant["bf16"] + ["checkpointed"] * variant["checkpointed"]
    words += [f"{variant['ranks']} ranks"] * (variant["ranks"] > 1)
    return ", ".join(words) or "as written"


class Memory:
    """Resident memory of a process and all below it, sampled until `stop`.

    Attributes:
        most_bytes: the most that they held together.
        peaks: the most of each, by its id, as the kernel keeps it.
    """

    def __init__(self, pid: int) -> None:
        self.most_bytes = 0
        self.peaks: dict[int, int] = {}
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()

    def stop(self) -> None:
        """No more samples."""
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(EVERY_S):
            together = 0
            for pid in _family(self._pid):
                with contextlib.suppress(OSError):
                    sizes = _sizes(pid)
                    together += sizes.get("VmRSS", 0)
                    self.peaks[pid] = max(self.peaks.get(pid, 0), sizes.get("VmHWM", 0))
            self.most_bytes = max(self.most_bytes, together)


def _family(pid: int) -> Iterator[int]:
    yield pid
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _family(int(child))


def _sizes(pid: int) -> dict[str, int]:
    """Bytes by the names of the kernel."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    rows = (line.split() for line in lines if line.endswith(" kB"))
    return {row[0].rstrip(":"): int(row[1]) << 10 for row in rows}


def windows(size: str, batch: int, length: int) -> list[dict[str, Any]]:
    """Steps of some sizes and variants in one process of the script."""
    options = checked_options(
        COMMAND_LINE,
        script=str(SCRIPT),
        arguments=(size, str(batch), str(length)),
        goal=Goal(profile=False),
        device="cpu",
    )
    rows = []
    with Run(options, NullDisplay(), keep=False) as run:
        loop = FakeLoop(run, NullDisplay())
        loop.start()
        pid = run.workers.current.pid
        for variant in VARIANTS:
            for number in (2, batch, 4 * batch, 16 * batch):
                load, cpu, began = os.getloadavg()[0], _cpu_s(pid), time.monotonic()
                loop.step(number, variant)
                wall_s = time.monotonic() - began
                row = {"variant": variant.name, "batch_size": number, "wall_s": wall_s}
                rows.append({**row, "cpu_s": _cpu_s(pid) - cpu, "load": load})
        run.workers.end()
    return rows


def _cpu_s(pid: int) -> float:
    """User and system, of all threads so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def text_of(data: dict[str, Any]) -> str:
    """The printed tables."""
    lines = header(data, "What an estimate of a large model costs")
    if "command" in data:
        made = data["command"]
        billions = made["num_parameters"] / 1e9
        what = (
            f"estimate --gpu {GPUS} --shard {made['ranks']}: {billions:.1f} billion parameters, "
            f"{made['batch_size']} x {made['length']} tokens, {made['num_windows']} windows"
        )
        lines += [
            what,
            table(
                ("", "measured", "goal"),
                (
                    ("on the clock", f"{made['wall_s']:.1f} s", f"{GOALS['wall_s']:.0f} s"),
                    ("processors", f"{made['cpu_s']:.1f} s", ""),
                    ("processes together", f"{made['together_bytes'] / 2**30:.2f} GiB", ""),
                    ("their peaks added up", f"{made['peak_bytes'] / 2**30:.2f} GiB", "4 GiB"),
                    ("load before", f"{made['load']:.1f}", ""),
                ),
            ),
            "",
        ]
    if "windows" in data:
        rows = data["windows"]
        slowest = max(row["wall_s"] for row in rows)
        what = f"windows of {data['window_size']}: the slowest {slowest:.2f} s on the clock"
        lines += [
            f"{what}, goal {GOALS['window_s']:.0f} s",
            table(
                ("variant", "batch", "on the clock", "processor", "load"),
                [
                    (
                        row["variant"],
                        row["batch_size"],
                        f"{row['wall_s']:.2f} s",
                        f"{row['cpu_s']:.2f} s",
                        f"{row['load']:.1f}",
                    )
                    for row in rows
                ],
            ),
        ]
    return "\n".join(lines).rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=("command", "windows"))
    parser.add_argument("--command-size", default="70B")
    parser.add_argument("--window-size", default="1B")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--no-results", action="store_true")
    given = parser.parse_args()
    results = Results(None if given.no_results else given.results, "estimate-large")
    if given.only != "windows":
        say(f"the whole command, {given.command_size} over {given.ranks} ranks")
        made = command(given.command_size, given.batch, given.length, given.ranks)
        results.data["command"] = made
        results.save()
    if given.only != "command":
        say(f"windows of {given.window_size}")
        results.data["window_size"] = given.window_size
        results.data["windows"] = windows(given.window_size, given.batch, given.length)
    results.data["state"] = "finished"
    results.finish(text_of(results.data))


if __name__ == "__main__":
    main()
