"""Checks on a CUDA machine, without network: probes, runs, tests, benchmarks; half an hour.

    scripts/gpu-check                      # all parts, one after the other
    scripts/gpu-check --part 1             # one part, nine minutes at most; repeat it for more
    scripts/gpu-check --wheels folder      # takes what the machine lacks from wheels in a folder
    scripts/gpu-check --part 0             # this command itself; needs no GPU
    scripts/gpu-check --summary FILE ...   # the page of results that are there already

    0  doctor, a short run and some probes on the CPU
    1  the probes: one question each, see scripts/gpu_probes
    2  char_gpt and resnet18_cifar10 under --memory-limit 8GiB, with traces and NVML's counters
    3  the memory search under 8 GiB, and a size that the device refuses
    4  doctor, tests/gpu, and the benchmarks that mean something on a GPU

It works with the torch that is installed (2.6 or later) and installs none. Each part leaves

    gpu-check-N_DEVICE_TIME.tar.gz     everything, written anew every few seconds: a part that
                                       is killed loses next to nothing
    gpu-check-partN_DEVICE_DATE.json   findings, hardware, driver and versions, for bench/results
    gpu-check-partN_DEVICE_DATE.txt    the same as a page, which is printed at the end as well

Where a run has both, `comparison.json` beside its record sets recomputed occupancy against GPM's SM
occupancy, estimated SM efficiency against GPM's SM activity, and NVML's memory against torch's.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_check_machine import ROOT, CannotCheckError, look, prepare
from gpu_check_parts import PART_S, PARTS, Step
from gpu_check_summary import findings_below, page, slug, write_results

SAVE_S = 15.0
"""Within a step the file is written anew so often."""
MAX_BYTES = 15 * 1024**2
"""Of the written file, with room to 16 MB."""
OUTPUT = "output.txt"
TAIL_BYTES = 20_000
"""Of what a step printed, its end is kept."""
END_S = 5.0
"""A step that knows its limit ends by itself so long before it is ended."""
PACKAGES = ("torch", "triton", "numpy", "msgspec", "nvidia-ml-py", "tensorboard")
"""Whose versions are named in the results."""


@dataclass
class Part:
    """Runs the steps of one part and keeps what they leave.

    Args:
        number: 0 to 4.
        folder: where the file goes.
        environment: of the steps.
        device: for the name of the file.
    """

    number: int
    folder: Path
    environment: dict[str, str]
    device: dict[str, Any]
    work: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="gpu-check-")))

    def __post_init__(self) -> None:
        name = slug(str(self.device.get("name", "cpu")))
        stamp = time.strftime("%Y%m%d-%H%M%S")
        self.path = self.folder / f"gpu-check-{self.number}_{name}_{stamp}.tar.gz"
        self.manifest: dict[str, Any] = {
            "part": self.number,
            "state": "running",
            "device": self.device,
            "platform": platform.platform(),
            "python": platform.python_version(),
            "packages": self.device.pop("packages", {}),
            "command": sys.argv,
            "started_at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "steps": [],
            "left_out": [],
        }

    def run(self) -> bool:
        """All steps; whether each ended as it should."""
        steps = PARTS[self.number]
        end_s = time.monotonic() + PART_S[self.number]
        try:
            for place, step in enumerate(steps):
                # What earlier steps left over is this one's; the later ones keep their own.
                later_s = sum(later.limit_s for later in steps[place + 1 :])
                self._step(step, end_s - time.monotonic() - later_s)
                self.write()
            self.manifest["state"] = "finished"
            self.write()
        finally:
            shutil.rmtree(self.work, ignore_errors=True)
        return all(step["ok"] for step in self.manifest["steps"])

    def _step(self, step: Step, limit_s: float) -> None:
        out = self.work / step.name
        out.mkdir(parents=True)
        places = {"{out}": str(out), "{limit}": f"{max(1.0, limit_s - END_S):.0f}"}
        words = [sys.executable, *(_filled(word, places) for word in step.words)]
        print(f"part {self.number}: {step.name} ...", file=sys.stderr, flush=True)
        started_s = time.monotonic()
        self.manifest["in_step"] = step.name
        code = _call(words, self.environment, limit_s, out / OUTPUT, self.write)
        del self.manifest["in_step"]
        entry = {
            "name": step.name,
            "command": words[1:],
            "exit_code": code,
            "ok": code in step.codes,
            "seconds": round(time.monotonic() - started_s, 1),
        }
        record = out / "run" / "record.json"
        if record.exists():
            rows = compare(json.loads(record.read_bytes()))
            (out / "comparison.json").write_text(json.dumps(rows, indent=1) + "\n")
        self.manifest["steps"].append(entry)
        print(f"  exit code {code} after {entry['seconds']} s", file=sys.stderr, flush=True)

    def write(self) -> None:
        """The archive and the results anew; what is too large is left out and named."""
        draft = self.path.with_suffix(f".{os.getpid()}.draft")
        left_out: list[str] = []
        with tarfile.open(draft, "w:gz") as tar:
            # Small files first: records and outputs before traces.
            files = sorted(
                (path for path in self.work.rglob("*") if path.is_file()),
                key=lambda path: (_size(path), str(path)),
            )
            for file in files:
                name = str(file.relative_to(self.work))
                data = _read(file)
                if data is None:
                    continue
                packed = len(data) / (1 if file.suffix == ".gz" else 4)
                if draft.stat().st_size + packed > MAX_BYTES:
                    left_out.append(f"{name} ({len(data)} bytes)")
                    continue
                _add(tar, name, data)
            self.manifest["left_out"] = left_out
            _add(tar, "manifest.json", (json.dumps(self.manifest, indent=1) + "\n").encode())
        draft.replace(self.path)
        self.results = write_results(self.folder, self.manifest, findings_below(self.work))


def _filled(word: str, places: dict[str, str]) -> str:
    for place, text in places.items():
        word = word.replace(place, text)
    return word


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # a run replaces its files meanwhile
        return 0


def _read(path: Path) -> bytes | None:
    """A file of a step that may still be writing it; `None` where it is gone."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    return data[-TAIL_BYTES:] if path.name == OUTPUT else data


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime = len(data), int(time.time())
    tar.addfile(entry, io.BytesIO(data))


def _call(
    words: Sequence[str],
    environment: dict[str, str],
    limit_s: float,
    output: Path,
    save: Callable[[], None],
) -> int:
    """The exit code, 124 where the time was up; what is printed goes to a file.

    Args:
        save: called every now and then meanwhile.
    """
    if limit_s <= 0:
        output.write_text("not started: the part's time is up\n")
        return 124
    end_s = time.monotonic() + limit_s
    with output.open("wb") as file:
        process = subprocess.Popen(
            words, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        while (left_s := end_s - time.monotonic()) > 0:
            try:
                return process.wait(min(SAVE_S, left_s))
            except subprocess.TimeoutExpired:
                save()
        process.terminate()  # a run keeps what it measured, as after Ctrl-C
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return 124


def compare(record: dict[str, Any]) -> list[dict[str, Any]]:
    """For each trial what two sources say of one thing; `None` where one of them is silent."""
    rows = []
    for trial in record.get("trials", []):
        profile, counters = trial.get("profile") or {}, trial.get("counters") or {}
        memory = trial.get("memory") or {}
        occupancy, busy = profile.get("occupancy_pct"), profile.get("kernel_pct")
        rows.append(
            {
                "trial": trial["ordinal"],
                "batch_size": trial["batch_size"],
                "occupancy_times_busy_pct": None
                if occupancy is None or busy is None
                else occupancy * busy / 100,
                "gpm_sm_occupancy_pct": counters.get("sm_occupancy_pct"),
                "estimated_sm_efficiency_pct": profile.get("sm_efficiency_pct"),
                "gpm_sm_active_pct": counters.get("sm_active_pct"),
                "torch_reserved_bytes": memory.get("reserved_bytes"),
                "nvml_process_bytes": counters.get("process_memory_bytes"),
                "nvml_used_bytes": counters.get("memory_used_bytes"),
            }
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 0 when every step ended as it should, 1 otherwise."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--part", type=int, choices=sorted(PARTS), action="append", help="only this one, or these"
    )
    parser.add_argument("--wheels", type=Path, help="folder of wheels for what is missing")
    parser.add_argument("--output", type=Path, default=Path(), help="folder for the files")
    parser.add_argument("--summary", type=Path, nargs="+", help="print the page of these results")
    options = parser.parse_args(arguments)
    if options.summary:
        print(page(json.loads(path.read_bytes()) for path in options.summary), end="")
        return 0
    parts = options.part or [number for number in PARTS if number]
    good, results = True, []
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as scratch:
        try:
            environment = prepare(Path(scratch), options.wheels)
            options.output.mkdir(parents=True, exist_ok=True)
            for number in parts:
                device = look(number, environment, PACKAGES)
                part = Part(number, options.output, environment, device)
                good = part.run() and good
                results.append(part.results)
                print(part.path, flush=True)
        except CannotCheckError as error:
            print(f"Error: {error}", file=sys.stderr)
            return 1
    print(page(json.loads(path.read_bytes()) for path in results), end="")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
