"""A log directory with everything the tab may meet, and a TensorBoard over it."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import msgspec
from batchadvisor.advisor.advise import advise
from batchadvisor.records import DeviceRun, DevicesRecord
from batchadvisor.session.recording.event_files import write_run_events
from batchadvisor.session.recording.store import read_record
from msgspec.structs import replace

from ..ports import free_ports
from ..reports import samples

ROOT = Path(__file__).parents[2]
CHAR_GPT = ROOT / "tests/data/records/char_gpt_cpu.json"
HOSTILE = "<img src=x onerror=alert(1)> & \x1b[31m '\"../"
PLUGIN = "data/plugin/batch_advisor"
START_S = 90


def put_record(folder, record):
    folder.mkdir(parents=True, exist_ok=True)
    data = record if isinstance(record, bytes) else msgspec.json.encode(record)
    path = folder / "record.json"
    path.write_bytes(data)
    return path


def two_devices(folder, record):
    """A run on two devices: a folder for each, and what says that they belong together."""
    names = ("cuda-0", "cuda-1")
    for name in names:
        put_record(folder / name, record)
    devices = tuple(DeviceRun(device=name, model="Synthetic", folder=name) for name in names)
    whole = DevicesRecord(state="finished", started_at="", command=("x",), devices=devices)
    (folder / "devices.json").write_bytes(msgspec.json.encode(whole))


def cpu_trace(path, steps=3):
    """A small trace as torch.profiler writes it on a CPU: steps with an operator each."""
    events = []
    for number in range(steps):
        start = 1000 * number
        for name, category, begin, duration in (
            (f"ProfilerStep#{number}", "user_annotation", start, 990),
            ("enumerate(DataLoader)#_SingleProcess.__next__", "user_annotation", start + 5, 600),
            ("aten::mm<b>", "cpu_op", start + 620, 300),
        ):
            events.append(
                {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": begin,
                 "dur": duration, "args": {}}
            )  # fmt: skip
    data = json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)


def build(folder):
    """Fills the folder; names say what is in it."""
    shutil.copy(CHAR_GPT, put_record(folder / "char_gpt", b""))
    record = read_record(folder / "char_gpt")
    write_run_events(record, advise(record), folder / "char_gpt")
    gpu, _ = samples.gpu()
    put_record(folder / "gpu", gpu)
    two_devices(folder / "devices", gpu)
    put_record(folder / "nothing_fits", samples.nothing_fits()[0])
    put_record(folder / "interrupted", samples.interrupted()[0])
    put_record(folder / "running", replace(gpu, state="running", trials=()))
    put_record(folder / "damaged", CHAR_GPT.read_bytes()[:700])
    put_record(folder / "newer", b'{"schema_version": "9.0"}')
    put_record(folder / "not ours", b'{"score": 1}')
    put_record(folder / HOSTILE, gpu)
    cpu_trace(folder / "foreign" / "host.1.pt.trace.json.gz")
    cpu_trace(folder / "foreign" / "exported.json")
    cpu_trace(folder / HOSTILE / "traces" / "<script>alert(1)<script>.pt.trace.json")
    broken = folder / "broken traces" / "cut.pt.trace.json"
    broken.parent.mkdir()
    broken.write_text("{")
    (folder / "settings.json").write_text('{"a": 1}')
    (folder / "secret.txt").write_text("secret")
    return folder


def entry_points(site):
    """Distributions, first on the path: this one as pyproject.toml has it, and no PyTorch profiler.

    That plugin would start a process for every folder of traces, and warn of what it cannot read.
    """
    text = (ROOT / "pyproject.toml").read_text()
    points = re.search(
        r"\[project\.entry-points\.tensorboard_plugins\]\n(.+?)\n\n", text, re.DOTALL
    )
    _distribution(site, "batchadvisor", points.group(1).replace('"', ""))
    _distribution(site, "torch-tb-profiler", "")
    return site


def _distribution(site, name, points):
    info = site / f"{name.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(f"[tensorboard_plugins]\n{points}\n")


def environment(*site):
    """For a server: this package importable, and `site` first on the path."""
    paths = [
        *map(str, site),
        str(Path(importlib.import_module("batchadvisor").__file__).parents[1]),
    ]
    before = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, *([before] if before else [])])}


class Server:
    """`tensorboard --logdir` as a user starts it."""

    def __init__(self, logdir, work, *site):
        self.port = free_ports()
        self.root = f"http://127.0.0.1:{self.port}/"
        self.log = work / f"tensorboard-{self.port}.log"
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir)]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--load_fast", "false"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=work, env=environment(*site), stdout=log, stderr=log
            )
        self._wait()

    def _wait(self):
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            assert self.process.poll() is None, self.log.read_text()
            try:
                self.get("data/environment")
            except OSError:
                time.sleep(0.2)
            else:
                return
        raise AssertionError(self.log.read_text())

    def ask(self, path, method="GET"):
        """Status, headers and body, whatever the status."""
        request = urllib.request.Request(self.root + path, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read()

    def get(self, path):
        status, _, body = self.ask(path)
        assert status == 200, f"{path}: {status} {body[:300]!r}"
        return body

    def entries(self):
        return json.loads(self.get(f"{PLUGIN}/entries"))["entries"]

    def key(self, name):
        return next(entry["key"] for entry in self.entries() if entry["name"] == name)

    def show(self, name):
        return self.get(f"{PLUGIN}/show?key={self.key(name)}").decode()

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=20)

    def complaints(self):
        """Lines of its log that warn."""
        lines = self.log.read_text().splitlines()
        return [
            line for line in lines if re.match(r"[WEF]\d{4} |.*(Traceback|Error|In 3\.0)", line)
        ]
