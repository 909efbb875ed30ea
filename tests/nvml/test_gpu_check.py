"""`scripts/gpu-check`: its plumbing; and no document shows figures of made-up devices."""

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
COMMAND = ROOT / "scripts/gpu-check"
NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
SLOW = """
import sys
sys.path.insert(0, {scripts!r})
import gpu_check
quick = gpu_check.Step("quick", ("-c", "open('{out}/found.txt', 'w').write('kept')"))
endless = gpu_check.Step("endless", ("-c", "import time; time.sleep(600)"))
gpu_check.PARTS[0] = (quick, endless)
sys.exit(gpu_check.main(["--part", "0", "--output", {output!r}]))
"""


def call(*arguments, **variables):
    return subprocess.run(
        [COMMAND, *map(str, arguments)],
        env={**os.environ, "PYTHON": sys.executable, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def content(path):
    """Name to bytes of everything in a result."""
    with tarfile.open(path) as tar:
        return {one.name: tar.extractfile(one).read() for one in tar if one.isfile()}


@NO_GPU
def test_without_cuda_it_says_so(tmp_path):
    done = call("--part", "2", "--output", tmp_path)
    assert done.returncode == 2
    assert "part 2 needs a CUDA device" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_its_own_check(stub_folder, tmp_path):
    """Part 0 is real: doctor and a run, with the stand-in for NVML as the driver."""
    done = call("--part", "0", "--output", tmp_path, LD_LIBRARY_PATH=str(stub_folder))
    assert done.returncode == 0, done
    (path,) = tmp_path.iterdir()
    assert done.stdout.strip() == str(path)
    found = content(path)
    manifest = json.loads(found["manifest.json"])
    assert manifest["state"] == "finished"
    assert manifest["device"]["torch"] == torch.__version__
    assert manifest["device"]["driver"]
    assert manifest["device"]["nvml"] == ["Stub GPU 0"]
    assert [(one["name"], one["exit_code"]) for one in manifest["steps"]] == [
        ("doctor", 0),
        ("plain-cpu", 0),
    ]
    record = json.loads(found["plain-cpu/run/record.json"])
    rows = json.loads(found["plain-cpu/comparison.json"])
    assert [one["batch_size"] for one in rows] == [one["batch_size"] for one in record["trials"]]
    # A CPU has neither; what was not measured is not compared.
    assert {one["gpm_sm_active_pct"] for one in rows} == {None}
    assert path.stat().st_size < 16 * 10**6


def test_a_part_that_is_killed_loses_only_its_step(tmp_path):
    code = SLOW.format(scripts=str(ROOT / "scripts"), output=str(tmp_path), out="{out}")
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("*.tar.gz")):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
    finally:
        command = ["ps", "-o", "pid=", "--ppid", str(process.pid)]
        children = subprocess.run(command, capture_output=True, text=True, check=False)
        os.kill(process.pid, signal.SIGKILL)
        for child in children.stdout.split():
            os.kill(int(child), signal.SIGKILL)
        process.wait()
    (path,) = tmp_path.glob("*.tar.gz")
    found = content(path)
    assert found["quick/found.txt"] == b"kept"
    manifest = json.loads(found["manifest.json"])
    assert manifest["state"] == "running"
    assert [one["name"] for one in manifest["steps"]] == ["quick"]


def documents():
    """Every document of the repository."""
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


def rows_of(text):
    """Lines of figures, spaces evened out."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return {line for line in lines if len(re.findall(r"\d+(?:\.\d+)?", line)) >= 4}


SYNTHETIC = sorted((ROOT / "tests/reports/golden").glob("gpu-*.txt"))
"""Renderings of records that were written by hand; no such device was measured."""


def test_no_document_shows_figures_of_synthetic_records():
    assert SYNTHETIC
    made_up = set().union(*(rows_of(one.read_text()) for one in SYNTHETIC))
    assert len(made_up) >= 5
    for name, text in documents().items():
        assert not rows_of(text) & made_up, name
        for word in ("Stub GPU", "on paper, torch"):
            assert word not in text, name


def test_a_figure_would_be_found():
    """The README does show rows of a stored run, by the same comparison."""
    shown = rows_of(documents()["README.md"])
    real = json.loads((ROOT / "tests/data/records/char_gpt_cpu.json").read_text())
    assert real["device"]["kind"] == "cpu"
    assert any(line.startswith("8 ") and "yours" in line for line in shown)
