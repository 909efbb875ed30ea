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


def _lines() -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", README.read_text(), flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    assert lines
    return lines


def _commands() -> list[str]:
    """The lines of the blocks of bash, but for the two that install; the gate runs these."""
    return [one for one in _lines() if not one.startswith("python3 ")]


FIRST = "batchadvisor run model.py"
"""The run that others look at."""
RUNS = [one for one in _commands() if one.startswith("batchadvisor run ") and one != FIRST]
LOOKS = [one for one in _commands() if one not in RUNS and one != FIRST]
SHORT = ("--budget", "5s", "--goal", "memory", "--sizes", "8,16")
"""That they run is what is asked here; searches are tested elsewhere."""
SERVERS = {
    "batchadvisor view": ("data/plugin/batch_advisor/entries", '"kind":"run"'),
    "tensorboard --logdir": ("data/plugin/pytorch_profiler/runs", "batch_size=0016"),
}
"""How commands begin that serve until they are ended; an address, and what it answers with."""


def _fill(folder: Path) -> Path:
    """Makes it a user's folder, with the scripts that the README's commands name."""
    scripts = ROOT / "tests/scripts"
    shutil.copy(scripts / "plain.py", folder / "model.py")
    shutil.copy(scripts / "argparse_validate_first.py", folder / "train.py")
    shutil.copy(scripts / "train_ddp.py", folder / "train_ddp.py")
    shutil.copy(scripts / "no_loader.py", folder / "gpt.py")
    (folder / "bench.py").write_text(_python("# bench.py"))
    (folder / "package").mkdir()
    (folder / "package/__init__.py").touch()
    shutil.copy(scripts / "argparse_validate_first.py", folder / "package/train.py")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return _fill(tmp_path)


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder after the first run, and the second."""
    folder = _fill(tmp_path_factory.mktemp("readme"))
    assert FIRST in _commands()
    options = ("-o", "batchadvisor-runs/model", *SHORT)  # with traces, which commands look at
    _run_well(FIRST, folder, *options)
    runs = folder / "batchadvisor-runs"
    shutil.copytree(runs / "model", runs / "model-after")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("line", RUNS)
def test_a_command_that_runs(folder: Path, line: str) -> None:
    _run_well(line, folder, *([] if "--dry-run" in line else ["--no-profile", *SHORT]))


@pytest.mark.slow
@pytest.mark.parametrize("line", LOOKS)
def test_a_command_that_looks_at_it(probed: Path, line: str) -> None:
    command = shlex.split(line, comments=True)
    server = next((one for one in SERVERS if line.startswith(one)), None)
    if server is None:
        assert command[0] == "batchadvisor"
        _run_well(line, probed)
        return
    host = ["--host", "127.0.0.1"] if command[0] == "tensorboard" else []
    _serve([*command, *host], probed, *SERVERS[server])


def test_the_gate_runs_the_two_commands_that_install() -> None:
    gate = (ROOT / ".ci/run").read_text()
    installing = [one for one in _lines() if one.startswith("python3 -m venv")]
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


def _put(text: str, name: str, content: str) -> str:
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    head, _, tail = text.partition(begin)
    _, found, tail = tail.partition(end)
    assert found, f"the README lacks the marks {begin} and {end}"
    return f"{head}{begin}\n```text\n{content}\n```\n{end}{tail}"


def _environment() -> dict[str, str]:
    """In which the commands of this environment are found by their names."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def _run_well(line: str, folder: Path, *options: str) -> None:
    """Runs a command of the README, with options after its verb."""
    command = shlex.split(line, comments=True)
    command[2:2] = options
    done = _run(command, folder, _environment())
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    assert done.stdout.strip(), line


def _serve(command: list[str], folder: Path, path: str, words: str) -> None:
    """Starts a TensorBoard and waits until an address of it answers with the words."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [*command, "--port", str(port)],
        cwd=folder,
        env=_environment(),
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
