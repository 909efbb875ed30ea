"""What the benchmarks share: the machine, results on disk, tables, one size in a fresh process."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
from batchadvisor.probes.devices import host
from batchadvisor.probes.nvml.gpus import devices
from batchadvisor.probes.process.endings import WorkerGone
from batchadvisor.probes.process.messages import StepSample
from batchadvisor.probes.process.orders import RunTrial, WorkOrder
from batchadvisor.probes.process.supervisor import Worker
from batchadvisor.probes.process.worker_environment import Scratch, worker_environment
from batchadvisor.records import Spread, Trial, TrialRequest, Turns, TurnsPlan
from batchadvisor.session.run import CPU_PRECISION, GPU_PRECISION, MIN_SAMPLE_S
from batchadvisor.session.setup.target import choose_target

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
EXAMPLES = HERE.parent / "examples"
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "CUDA_VISIBLE_DEVICES")
PACKAGES = ("batchadvisor", "torch", "numpy", "msgspec")
TIMED_STEPS = """
def endless(loader):
    while True:
        yield from loader

def block(step):
    step()
    times = []
    for _ in range(num_steps):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return times
"""
"""Of the scripts that benchmarks write: seconds of steps, after one that is not counted."""


def say(text: str) -> None:
    """One line of progress, with the time."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


# the machine ---------------------------------------------------------------------------------


def hardware() -> str:
    """The GPUs by name, or the processor."""
    names = sorted({device.name for device in devices()})
    return " + ".join(names) if names else f"{host.cpu_name()} {host.num_cores()} cores"


def slug(text: str) -> str:
    """Lower case letters and digits joined by dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def environment() -> dict[str, Any]:
    """Hardware, versions, date and command, for the raw results."""
    return {
        "hardware": hardware(),
        "cpu": host.cpu_name(),
        "num_cores": host.num_cores(),
        "memory_bytes": host.total_bytes(),
        "load_average_at_start": os.getloadavg(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": {package: _version(package) for package in PACKAGES},
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "variables": {
            variable: os.environ[variable] for variable in VARIABLES if variable in os.environ
        },
        "command": shlex.join(
            ["python", f"bench/{Path(sys.argv[0]).name}", *_measured_by(sys.argv[1:])]
        ),
    }


PLACES = ("-o", "--output", "--out", "--results", "--resume", "--clones", "--logs", "--keep")
"""Options whose value is a place on this machine; any that is given a whole path is one too."""


def _measured_by(words: list[str]) -> list[str]:
    """A command without the paths of this machine that its results went to, or came from."""
    kept: list[str] = []
    options = iter(zip(words, [*words[1:], ""], strict=True))
    for word, following in options:
        name, equals, value = word.partition("=")
        if not equals:
            value = following
        if name not in PLACES and not (name.startswith("-") and value.startswith("/")):
            kept.append(word)
        elif not equals:
            next(options, None)
    return kept


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


# results -------------------------------------------------------------------------------------


class Results:
    """The raw data as JSON and the printed table as text, side by side.

    Args:
        folder: where they go; `None` writes nothing.
        theme: begins the names of the files.
        resumed: the JSON file of an earlier part, which is read and written again.
    """

    def __init__(self, folder: Path | None, theme: str, resumed: Path | None = None) -> None:
        self.data: dict[str, Any] = {"state": "running", "environment": environment()}
        self._path: Path | None = resumed
        if resumed is not None:
            self.data = json.loads(resumed.read_text()) | {"state": "running"}
        elif folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            name = f"{theme}_{slug(hardware())}_{time.strftime('%Y-%m-%d')}"
            self._path = folder / f"{name}.json"
            count = 1
            while self._path.exists():
                count += 1
                self._path = folder / f"{name}-{count}.json"

    @property
    def name(self) -> str:
        """Of the JSON file."""
        return "" if self._path is None else self._path.name

    def save(self) -> None:
        """Writes the data whole or not at all."""
        if self._path is None:
            return
        draft = self._path.with_suffix(f".{os.getpid()}.draft")
        draft.write_text(json.dumps(self.data, indent=1) + "\n")
        draft.replace(self._path)

    def finish(self, text: str) -> None:
        """Prints the table and writes it beside the data."""
        self.save()
        print(text)
        if self._path is not None:
            self._path.with_suffix(".txt").write_text(text + "\n", encoding="utf-8")
            say(f"wrote {self._path} and .txt")


def header(data: dict[str, Any], title: str) -> list[str]:
    """The first lines of a printed table."""
    env = data["environment"]
    load = env["load_average_at_start"][0]
    versions = ", ".join(f"{name} {version}" for name, version in env["versions"].items())
    variables = [f"{name}={value}" for name, value in env["variables"].items()]
    lines = [
        title,
        f"{env['hardware']} ({env['num_cores']} cores), load {load:.1f} at the start",
        f"python {env['python']}, {versions}",
        " ".join([env["date"], "", *variables, env["command"]]),
    ]
    if data["state"] != "finished":
        lines.append(f"INCOMPLETE: {data['state']}; what was measured by then")
    return [*lines, ""]


def table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns as wide as their widest cell; the first to the left, the others to the right."""
    cells = [[str(value) for value in row] for row in (headings, *rows)]
    widths = [max(len(row[n]) for row in cells) for n in range(len(headings))]
    lines = []
    for row in cells:
        rest = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *rest]).rstrip())
    return "\n".join(lines)


def interval(spread: Spread | None, scale: float = 1.0, digits: int = 3, unit: str = "") -> str:
    """`0.987 [0.975, 1.002]`, without the brackets where there is one value."""
    if spread is None:
        return "-"
    middle, low, high = (
        f"{value * scale:.{digits}f}{unit}" for value in (spread.median, spread.low, spread.high)
    )
    return middle if spread.num_samples == 1 else f"{middle} [{low}, {high}]"


def trimmed_mean(values: Sequence[float], share: float) -> tuple[float, float]:
    """The mean without `share` of the values at each end, and its standard error.

    By the Winsorized variance (Tukey and McLaughlin 1963, Sankhya A 25): from the values drawn in
    to the trimming points.
    """
    ordered = sorted(values)
    num, cut = len(ordered), int(share * len(ordered))
    kept = ordered[cut : num - cut]
    drawn_in = [min(max(value, kept[0]), kept[-1]) for value in ordered]
    error = statistics.stdev(drawn_in) / (len(kept) / num * math.sqrt(num))
    return statistics.fmean(kept), error


# one size in a fresh process -----------------------------------------------------------------


class Bench:
    """Starts workers of one script, as `batchadvisor run` starts them, and ends them.

    Args:
        script: path of the script.
        arguments: its own.
        device: as `batchadvisor run --device` takes it.
        extra: further environment variables.
    """

    def __init__(
        self,
        script: Path,
        arguments: Sequence[str],
        device: str,
        extra: dict[str, str] | None = None,
    ) -> None:
        self.script = script
        self.arguments = tuple(arguments)
        self.target = choose_target(device, None)
        self.scratch = Scratch()
        self.environment = {
            **worker_environment(self.target.device, self.scratch.path, self.target.gpus.variables),
            **(extra or {}),
        }
        self.log = self.scratch.path / "script.log"
        self._num_workers = 0

    def __enter__(self) -> Bench:  # noqa: PYI034  Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.scratch.remove()

    @contextmanager
    def worker(self, on_progress: Any = lambda _: None) -> Iterator[Worker]:
        """A fresh process of the script, ended at the end."""
        order = WorkOrder(
            script=str(self.script),
            arguments=self.arguments,
            module=False,
            worker=self._num_workers,
            device=self.target.device,
            memory_limit_bytes=None,
            data_limit_bytes=self.target.data_limit_bytes,
            run_folder=str(self.scratch.path),
            scratch_folder=str(self.scratch.path),
            loader=None,
            batch_cap=None,
            profile_schedule=(0, 1, 3),
            with_stack=False,
        )
        self._num_workers += 1
        worker = Worker(
            order,
            log=self.log,
            environment=self.environment,
            silence_s=120.0,
            setup_s=1200.0,
            on_progress=on_progress,
        )
        try:
            yield worker
        finally:
            worker.end()

    def measure(self, size: int, *, time_limit_s: float) -> dict[str, Any]:
        """One timed window at one size in a process of its own, as plain data."""
        started = time.time()
        start = time.monotonic()
        row: dict[str, Any] = {"batch_size": size, "started_at_s": started}
        request = TrialRequest(batch_size=size, kind="timed")
        with self.worker() as worker:
            try:
                discovery, device = worker.discover()
                precision = CPU_PRECISION if device.kind == "cpu" else GPU_PRECISION
                order = RunTrial(
                    request=request,
                    ordinal=0,
                    precision=precision,
                    min_sample_s=MIN_SAMPLE_S,
                    time_limit_s=time_limit_s,
                )
                result = worker.ask(order)
                trial, steps = result.trial, result.steps
            except WorkerGone as gone:
                row |= {"outcome": gone.outcome, "detail": gone.detail, "samples_per_s": None}
            else:
                row |= _row(trial, steps)
                row["setup_s"] = discovery.setup_s
        return {**row, "wall_s": time.monotonic() - start}

    def in_turn(self, sizes: Sequence[int], num_rounds: int) -> Turns:
        """Sizes in turn, a step each after one that does not count, in a process of their own.

        Raises:
            WorkerGone: it ended.
        """
        num_steps = (1,) * len(sizes)
        plan = TurnsPlan(sizes=tuple(sizes), num_steps=num_steps, num_rounds=num_rounds)
        request = TrialRequest(batch_size=max(sizes), kind="turns", turns=plan)
        with self.worker() as worker:
            worker.discover()
            order = RunTrial(request=request, ordinal=0, precision=0.0, time_limit_s=3600.0)
            trial = worker.ask(order).trial
        assert trial.turns is not None
        return trial.turns


def _row(trial: Trial, steps: Sequence[StepSample]) -> dict[str, Any]:
    speed = trial.samples_per_s if trial.ran else None
    return {
        "outcome": trial.outcome,
        "detail": trial.detail,
        "samples_per_s": None if speed is None else speed.median,
        "spread": msgspec.to_builtins(speed),
        "num_warmup_steps": trial.num_warmup_steps,
        "doubts": list(trial.doubts),
        "step_s": [step.step_s for step in steps],
        "load": os.getloadavg()[0],
    }


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for one benchmark, removed at the end."""
    return tempfile.TemporaryDirectory(prefix="batchadvisor-bench-", ignore_cleanup_errors=True)
