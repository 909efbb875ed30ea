"""The README is true: its output is the rendering of a stored record, its commands run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.reports.terminal import render
from batchadvisor.session.store import read_record

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
RECORD = ROOT / "tests/data/records/char_gpt_cpu.json"
"""The record of the run that the README shows."""
BREAK = "What it does to the training"
UPDATE = os.environ.get("BATCHADVISOR_UPDATE_GOLDEN") == "1"


def test_the_output_is_the_rendering_of_the_stored_record() -> None:
    record = read_record(RECORD)
    folder = "batchadvisor-runs/char_gpt"
    text = render(
        record,
        advise(record),
        files=[("record", f"{folder}/record.json"), ("traces", f"{folder}/traces")],
        next_command=f"batchadvisor view {folder}",
        others=[f"batchadvisor report {folder} -o report.html"],
        width=100,
        color=False,
    )
    first, mark, rest = text.partition(BREAK)
    assert mark, "the rendering lacks the section at which the README breaks it"
    command = f"$ batchadvisor run {record.script.path}\n"
    wanted = _put(README.read_text(), "answer", command + first.rstrip())
    wanted = _put(wanted, "rest", (mark + rest).rstrip())
    if UPDATE:
        README.write_text(wanted)
    assert README.read_text() == wanted


def test_the_output_of_tails_is_that_of_the_command() -> None:
    shown = re.search(r"<!-- tails: begin -->\n```text\n\$ (.*)\n", README.read_text())
    assert shown is not None, "the README lacks the command of its tails"
    command = shlex.split(shown[1])
    environment = {**os.environ, "COLUMNS": "100"}
    done = _run([sys.executable, "-m", *command], ROOT, environment)
    assert done.returncode == 0, done.stderr
    wanted = _put(README.read_text(), "tails", f"$ {shown[1]}\n{done.stdout.rstrip()}")
    if UPDATE:
        README.write_text(wanted)
    assert README.read_text() == wanted


def test_every_option_of_the_readme_exists() -> None:
    help_text = "".join(
        _run([sys.executable, "-m", "batchadvisor", verb, "--help"], ROOT).stdout
        for verb in ("run", "advise", "analyze", "report", "tails", "view")
    )
    options = set(re.findall(r"--[a-z][a-z-]+", README.read_text()))
    foreign = {
        "--logdir",
        "--epochs",
        "--lr",
        "--batch-size",
        "--batch",
    }  # of scripts; --batch_size too
    missing = {one for one in options - foreign if one not in help_text}
    assert not missing


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder with the scripts that the README's commands name."""
    base = tmp_path_factory.mktemp("readme")
    scripts = ROOT / "tests/scripts"
    shutil.copy(scripts / "plain.py", base / "model.py")
    shutil.copy(scripts / "argparse_validate_first.py", base / "train.py")
    shutil.copy(scripts / "train_ddp.py", base / "train_ddp.py")
    shutil.copy(scripts / "no_loader.py", base / "gpt.py")
    (base / "bench.py").write_text(_python("# bench.py"))
    (base / "package").mkdir()
    (base / "package/__init__.py").touch()
    shutil.copy(scripts / "argparse_validate_first.py", base / "package/train.py")
    return base


@pytest.mark.slow
def test_the_commands_run(folder: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ran = 0
    for line in _commands():
        command = shlex.split(line, comments=True)
        if command[0] == "python3":
            continue  # the two commands that install; the gate runs them in a fresh clone
        if command[0] == "tensorboard":
            path, words = "data/plugin/pytorch_profiler/runs", "batch_size=0016"
            _serve([*command, "--host", "127.0.0.1"], folder, environment, path, words)
            ran += 1
            continue
        if command[:2] == ["batchadvisor", "view"]:
            path, words = "data/plugin/batch_advisor/entries", '"kind":"run"'
            _serve(command, folder, environment, path, words)
            ran += 1
            continue
        assert command[0] == "batchadvisor", line
        if "batchadvisor-runs/model-after" in command:  # the second run of the user's
            runs = folder / "batchadvisor-runs"
            shutil.copytree(runs / "model", runs / "model-after", dirs_exist_ok=True)
        if command[1] == "run":
            extra = ["--budget", "5s", "--no-profile"] if "train" in line else ["--budget", "8s"]
            command[2:2] = extra
            if line == "batchadvisor run model.py":
                command[2:2] = ["-o", "batchadvisor-runs/model"]
        done = _run(command, folder, environment)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        assert done.stdout.strip(), line
        ran += 1
    assert ran >= 7


def test_the_gate_runs_the_two_commands_that_install() -> None:
    gate = (ROOT / ".ci/run").read_text()
    installing = [one for one in _commands() if one.startswith("python3 -m venv")]
    assert len(installing) == 2
    assert "python3 -m venv .venv &&" in gate, "the gate takes the commands from the README"


@pytest.mark.slow
def test_the_notebook_runs(folder: Path) -> None:
    code = _python("import batchadvisor") + "\nprint(type(found).__name__, found.batch_size)\n"
    code += "assert found._repr_html_()\n"
    done = _run([sys.executable, "-c", code], folder)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"ProbedRun \d+", done.stdout.splitlines()[-1])


def test_the_callback_runs(folder: Path) -> None:
    done = _run([sys.executable, "-c", _python("# in your loop")], folder)
    assert done.returncode == 0, done.stderr
    assert "157 optimizer steps, 5000 samples" in done.stderr
    assert (folder / "runs/one/record.json").exists()


def test_the_error_is_the_one_that_is_printed(folder: Path) -> None:
    done = _run([sys.executable, "-m", "batchadvisor", "run", "-q", "gpt.py"], folder)
    assert done.returncode == 1
    assert done.stderr.strip() in README.read_text()


def _python(start: str) -> str:
    """The block of Python that begins with `start`."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    (found,) = (one for one in blocks if one.startswith(start))
    return str(found)


def _commands() -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", README.read_text(), flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    assert lines
    return lines


def _put(text: str, name: str, content: str) -> str:
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    head, _, tail = text.partition(begin)
    _, found, tail = tail.partition(end)
    assert found, f"the README lacks the marks {begin} and {end}"
    return f"{head}{begin}\n```text\n{content}\n```\n{end}{tail}"


def _serve(
    command: list[str], folder: Path, environment: dict[str, str], path: str, words: str
) -> None:
    """Starts a TensorBoard and waits until an address of it answers with the words."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [*command, "--port", str(port)],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + 90
        text = ""
        while time.monotonic() < end and words not in text:
            assert server.poll() is None, "TensorBoard ended"
            try:
                address = f"http://127.0.0.1:{port}/{path}"
                with urllib.request.urlopen(address, timeout=5) as answer:
                    text = answer.read().decode()
            except OSError:
                pass
            time.sleep(0.5)
        assert words in text
    finally:
        server.terminate()
        server.wait()


def _run(
    command: list[str], folder: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
