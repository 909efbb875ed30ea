"""`scripts/gpu-check`: its plumbing; and no document shows figures of made-up devices."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest
import torch
from batchadvisor.cli.run import run as run_command

ROOT = Path(__file__).parents[2]
COMMAND = ROOT / "scripts/gpu-check"
NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
SLOW = """
import sys
sys.path.insert(0, {scripts!r})
import gpu_check
quick = gpu_check.Step("quick", ("-c", "open('{out}/found.txt', 'w').write('kept')"))
endless = gpu_check.Step(
    "endless",
    ("-c", "import time; open('{out}/half.txt', 'w').write('too'); print('so far', flush=True); "
     "time.sleep(600)"),
)
gpu_check.SAVE_S = 0.2
gpu_check.PARTS[0] = (quick, endless)
sys.exit(gpu_check.main(["--part", "0", "--output", {output!r}]))
"""


def call(*arguments, **variables):
    environment = {**os.environ, "PYTHON": sys.executable, **variables}
    command = [COMMAND, *map(str, arguments)]
    options = {"capture_output": True, "text": True, "timeout": 300}
    return subprocess.run(command, check=False, env=environment, **options)


@pytest.fixture
def gpu_check(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module("gpu_check")


@pytest.fixture
def machine(gpu_check):
    return importlib.import_module("gpu_check_machine")


def content(path):
    """Name to bytes of everything in a result."""
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}


def kept_so_far(folder):
    """Names in the one result, none before it is there."""
    paths = list(folder.glob("*.tar.gz"))
    return content(paths[0]) if paths else {}


@NO_GPU
def test_without_cuda_it_says_so(tmp_path):
    done = call("--part", "2", "--output", tmp_path)
    assert done.returncode == 1
    assert "part 2 needs a CUDA device" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_its_own_check(stub_folder, tmp_path):
    """Part 0 is real: doctor and a run, with the stand-in for NVML as the driver."""
    done = call("--part", "0", "--output", tmp_path, LD_LIBRARY_PATH=str(stub_folder))
    assert done.returncode == 0, done
    (path,) = tmp_path.glob("*.tar.gz")
    assert done.stdout.splitlines()[0] == str(path)
    (results,) = tmp_path.glob("*.json")
    written = json.loads(results.read_bytes())
    assert written["environment"]["packages"]["torch"] == torch.__version__
    probes = ["profiler_start", "refusals", "memory_fill"]
    assert [finding["probe"] for finding in written["findings"]] == probes
    shown = results.with_suffix(".txt").read_text()
    assert done.stdout.endswith(shown)
    assert len(shown.splitlines()) < 70
    assert "unavailable: no CUDA device" in shown
    files = content(path)
    manifest = json.loads(files["manifest.json"])
    assert manifest["state"] == "finished"
    assert manifest["device"]["torch"] == torch.__version__
    assert manifest["device"]["driver"]
    assert manifest["device"]["nvml"] == ["Stub GPU 0"]
    assert [step["name"] for step in manifest["steps"]] == ["doctor", "plain-cpu", *probes]
    assert {step["exit_code"] for step in manifest["steps"]} == {0}
    record = json.loads(files["plain-cpu/run/record.json"])
    rows = json.loads(files["plain-cpu/comparison.json"])
    assert [row["batch_size"] for row in rows] == [row["batch_size"] for row in record["trials"]]
    # A CPU has neither; what was not measured is not compared.
    assert {row["gpm_sm_active_pct"] for row in rows} == {None}
    assert path.stat().st_size < 16 * 10**6


@pytest.mark.slow
def test_a_part_that_is_killed_loses_nothing(tmp_path):
    code = SLOW.format(scripts=str(ROOT / "scripts"), output=str(tmp_path), out="{out}")
    scratch = tmp_path / "scratch"  # a kill leaves it behind
    scratch.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": str(scratch)},
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        while "endless/half.txt" not in kept_so_far(tmp_path):
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
    files = content(path)
    assert files["quick/found.txt"] == b"kept"
    manifest = json.loads(files["manifest.json"])
    assert manifest["state"] == "running"
    assert [step["name"] for step in manifest["steps"]] == ["quick"]
    assert manifest["in_step"] == "endless"
    assert files["endless/half.txt"] == b"too"
    assert files["endless/output.txt"] == b"so far\n"
    (results,) = tmp_path.glob("*.json")
    assert json.loads(results.read_bytes())["state"] == "running"


@pytest.mark.slow
def test_a_step_beyond_its_time_is_ended(tmp_path, gpu_check):
    code = "print('here', flush=True); import time; time.sleep(60)"
    part = gpu_check.Part(0, tmp_path, dict(os.environ), {"name": "none"}, tmp_path / "work")
    part._step(gpu_check.Step("endless", ("-c", code)), 2.0)
    part._step(gpu_check.Step("late", ("-c", "pass")), -1.0)
    part.write()
    files = content(part.path)
    steps = json.loads(files["manifest.json"])["steps"]
    assert [(step["exit_code"], step["ok"]) for step in steps] == [(124, False), (124, False)]
    assert files["endless/output.txt"] == b"here\n"
    assert b"not started" in files["late/output.txt"]


@pytest.mark.slow
def test_parts_are_short_and_their_commands_exist(gpu_check):
    """Every option that a part uses is one of the command it is given to."""
    assert gpu_check.PART_S[1] + gpu_check.PART_S[2] <= 15 * 60
    assert sum(gpu_check.PART_S[number] for number in (1, 2, 3, 4)) <= 26 * 60
    assert max(gpu_check.PART_S.values()) <= 9 * 60
    for number, steps in gpu_check.PARTS.items():
        assert sum(step.limit_s for step in steps) <= gpu_check.PART_S[number], number
        for step in steps:
            words = [word.replace("{out}", "out").replace("{limit}", "9") for word in step.words]
            if "pytest" in words:
                assert words[-1] == "tests/gpu"
            if words[:3] == ["-m", "batchadvisor", "run"]:
                context = run_command.make_context("run", words[3:])
                assert (ROOT / context.params["script"]).exists()
                budget_s = context.params["budget"]
                assert budget_s + 20 <= step.limit_s
            elif words[0].startswith(("bench/", "scripts/")):
                command = [sys.executable, words[0], "--help"]
                shown = subprocess.check_output(command, cwd=ROOT, text=True)
                assert [word for word in words if word.startswith("--") and word not in shown] == []


def test_time_that_is_left_over_goes_to_the_next_step(tmp_path, monkeypatch, gpu_check):
    steps = [gpu_check.Step(name, ("-c", "print({limit})"), 30.0) for name in ("first", "second")]
    monkeypatch.setitem(gpu_check.PARTS, 0, steps)
    monkeypatch.setitem(gpu_check.PART_S, 0, 60.0)
    part = gpu_check.Part(0, tmp_path, dict(os.environ), {"name": "none"}, tmp_path / "work")
    assert part.run()
    files = content(part.path)
    assert int(files["first/output.txt"]) in (24, 25)
    assert 45 < int(files["second/output.txt"]) <= 55


def wheel(folder, name, tag):
    """A wheel with one empty module, as an index serves them."""
    info = f"{name}-1.0.dist-info"
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-1.0-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", "")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        text = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n"
        archive.writestr(f"{info}/WHEEL", text)
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.mark.slow
def test_wheels_of_another_python_are_skipped(tmp_path, monkeypatch, capsys, machine):
    """What the machine has goes first; what it lacks is taken from the wheel that fits it."""
    monkeypatch.setitem(machine.NEEDED, "carried_part", "carried-part")
    wheels = tmp_path / "wheels"
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    wheel(wheels, "carried_part", "cp399-cp399-manylinux2014_x86_64")
    with pytest.raises(machine.CannotCheckError, match=r"Python 3\.\d+: carried-part; no wheel in"):
        machine.prepare(tmp_path / "a", wheels)
    assert "skipped carried_part-1.0-cp399" in capsys.readouterr().err
    fits = wheel(wheels, "carried_part", "py3-none-any")
    own = wheel(wheels, "click", "py3-none-any")
    environment = machine.prepare(tmp_path / "b", wheels)
    said = capsys.readouterr().err
    assert f"skipped {own.name}: this machine has its own" in said
    assert fits.name not in said.replace(f"{fits.name} fits", "")
    code = "import carried_part, click; print(carried_part.__file__, click.__version__)"
    shown = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert str(tmp_path / "b") in shown


def test_the_command_that_fetches_wheels_fetches_them(tmp_path):
    """It is one line of a document. In the gate it must; elsewhere there may be no network."""
    (command,) = re.findall(r"^.*pip download.*$", documents()["CONTRIBUTING.md"], re.MULTILINE)
    assert {"--only-binary=:all:", "--python-version"} <= set(command.split())
    words = [sys.executable, *command.split()[1:], "--disable-pip-version-check"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    if done.returncode and not os.environ.get("CI"):
        pytest.skip(f"no wheel could be fetched: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "wheels").iterdir()
    assert wheel.name.startswith("msgspec-")
    assert "-cp312-" in wheel.name


def test_torch_is_never_carried(machine):
    for name in ("torch-2.11.0-cp311", "nvidia_cublas_cu12-12.8-py3-none", "triton-3.5-cp311"):
        assert machine.NOT_CARRIED.match(f"{name}-linux_x86_64.whl"), name
    for name in ("nvidia_ml_py-12.560-py3-none", "msgspec-0.19-cp311"):
        assert not machine.NOT_CARRIED.match(f"{name}-any.whl"), name


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
    made_up = set().union(*(rows_of(page.read_text()) for page in SYNTHETIC))
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
