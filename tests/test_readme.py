"""The README and the pages of docs/ are true: outputs are those of the code, commands run.

Every block of a page has a test here (`UNTESTED` is what one without a test is told).
"""

from __future__ import annotations

import os
import pickle
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.reports.builder.text import build_text
from batchadvisor.reports.terminal.answer import render
from batchadvisor.reports.terminal.brief import render as brief
from batchadvisor.session.answer import try_command
from batchadvisor.session.brief import brief_of
from batchadvisor.session.recording.store import read_record
from batchadvisor.session.tails import catalogue

from . import pages, plans
from .end_to_end.driver import run_preloaded
from .memory.allocator import Allocator, train
from .pages import README, ROOT, Block
from .served import serve, with_our_commands

RECORD = ROOT / "tests/data/records/char_gpt_cpu.json"
"""The record of the run that the README and docs/reading.md show."""
READING = ROOT / "docs/reading.md"
TAILS = ROOT / "docs/last-batch.md"


def test_the_output_is_the_rendering_of_the_stored_record() -> None:
    record = read_record(RECORD)
    folder = "batchadvisor-runs/char_gpt"
    text = build_text(record, advise(record))
    following = f"batchadvisor view {folder}"
    everything = f"batchadvisor show {folder}"
    short = brief(
        text,
        everything=everything,
        next_command=following,
        try_command=try_command(record, advise(record), Path(folder)),
        width=100,
        color=False,
    )
    pages.check_block(
        README, "answer", f"$ batchadvisor run {record.script.path}\n{short.rstrip()}"
    )
    whole = render(
        text,
        files=[("record", f"{folder}/record.json"), ("traces", f"{folder}/traces")],
        next_command=following,
        others=[f"batchadvisor report {folder} -o report.html"],
        width=100,
        color=False,
    )
    pages.check_block(READING, "rest", f"$ {everything}\n{whole.rstrip()}")


def test_the_brief_answer_is_that_of_the_stored_record() -> None:
    record = read_record(RECORD)
    brief = brief_of(record, advise(record), Path("batchadvisor-runs/char_gpt"))
    text = msgspec.json.format(msgspec.json.encode(brief), indent=2).decode()
    pages.check_block(ROOT / "docs/agents.md", "brief", text)


def test_the_output_of_tails_is_that_of_the_command() -> None:
    typed = pages.block("tails").text.partition("\n")[0].removeprefix("$ ")
    environment = {**os.environ, "COLUMNS": "100"}
    done = _run([sys.executable, "-m", *shlex.split(typed)], ROOT, environment)
    assert done.returncode == 0, done.stderr
    pages.check_block(TAILS, "tails", f"$ {typed}\n{done.stdout.rstrip()}")


def test_the_pages_count_the_cases_of_tails() -> None:
    told = [int(num) for text in pages.texts().values() for num in re.findall(r"(\d+) cases", text)]
    assert len(told) == 2
    assert set(told) == {len(catalogue())}


FOREIGN = """
--logdir --epochs --lr --batch-size --batch --gpus --workdir --seen --working-dir --task-epilog
--num-envs --num-steps --num-minibatches --mini-batch-size --per
--dummy --nnodes --node-rank --master-addr --master-port --partition --exact --wait
"""
"""Options of scripts and of other tools; --batch_size and --per_device_train_batch_size too."""


OF_OTHERS = ("CONTRIBUTING.md", "docs/works-with.md", "docs/estimate-against-gpus.md")
"""Pages that name options of other tools, or those of public scripts, as well."""


def test_every_option_of_the_pages_exists() -> None:
    """tests/test_light_imports.py compares the list with the commands."""
    listed = Path(__file__).with_name("golden_flags.txt").read_text()
    options = {
        option
        for page, text in pages.texts().items()
        if page not in OF_OTHERS
        for option in re.findall(r"--[a-z][a-z-]+", text)
    }
    assert options - {*FOREIGN.split(), "--help", "--version"} <= set(
        re.findall(r"--[a-z-]+", listed)
    )


def _lines(block: Block) -> list[str]:
    """Commands of a block of bash, without their comments."""
    lines = (shlex.join(shlex.split(line, comments=True)) for line in block.text.splitlines())
    plain = (line.replace("'{batch_size}'", "{batch_size}") for line in lines)
    return [line for line in plain if line]


CI_MARKS = ("rounds", "github", "gitlab")
"""Blocks of continuous integration, which tests/gate/test_ci.py parses and runs."""
INSTALLING = "python3 -m venv "
"""How the commands begin that the gate runs."""
FETCHING = "python3 -m pip download "
"""tests/nvml/test_gpu_check.py runs it."""


def _commands() -> list[str]:
    """What the pages' blocks of bash run, each once, but for what installs; the gate runs that."""
    lines = [
        line
        for block in pages.all_blocks()
        if block.language == "bash" and block.mark not in CI_MARKS
        for line in _lines(block)
    ]
    assert lines
    return [line for line in dict.fromkeys(lines) if not line.startswith((INSTALLING, FETCHING))]


FIRST = "batchadvisor run model.py"
"""The run that others look at."""
ON_A_CLUSTER = [command for command in _commands() if pages.is_on_a_cluster(command)]
"""tests/engines runs these, where there is a cluster."""
RUNS = [
    command
    for command in _commands()
    if command.startswith("batchadvisor run ") and command not in (FIRST, *ON_A_CLUSTER)
]
LOOKS = [command for command in _commands() if command not in (FIRST, *RUNS, *ON_A_CLUSTER)]
SHORT = ("--budget", "5s", "--goal", "memory", "--sizes", "8,16")
"""That they run is what is asked here; searches are tested elsewhere."""
SERVERS = {
    "batchadvisor view": ("data/plugin/batch_advisor/entries", '"kind":"run"'),
    "tensorboard --logdir": ("data/plugin/pytorch_profiler/runs", "batch_size=0016"),
}
"""How commands begin that serve until they are ended; an address, and what it answers with."""
PYTHON = (
    *("# bench.py", "# a loop of your own", "import batchadvisor", "# in your loop"),
    *("# in a worker of Ray", "# in Ray Train"),
)
"""How the blocks of Python begin that are executed below, or by tests/frameworks/test_ray.py."""
MARKS = ("answer", "brief", "rest", "tails", "error", "callback", "rooms", "trial")
"""The outputs and drawings that are compared below with the code."""
UNTESTED = "no test compares or runs this block: give it one"


def is_tested(block: Block) -> bool:
    """Whether a test here runs the block, or compares it with what is printed."""
    if block.mark in CI_MARKS:
        return block.language in ("bash", "yaml")
    if block.language == "bash":
        starts = ("batchadvisor ", INSTALLING, FETCHING, *SERVERS)
        return bool(_lines(block)) and all(line.startswith(starts) for line in _lines(block))
    if block.language == "python":
        return block.text.startswith(PYTHON)
    return block.language == "text" and block.mark in MARKS


class TestEveryBlock:
    def test_has_a_test(self) -> None:
        untested = [block.place for block in pages.all_blocks() if not is_tested(block)]
        assert untested == [], UNTESTED

    def test_is_still_there(self) -> None:
        """No page loses a block, and with it its test."""
        blocks = pages.all_blocks()
        assert sorted(block.mark for block in blocks if block.mark) == sorted((*MARKS, *CI_MARKS))
        python = [block for block in blocks if block.language == "python"]
        assert len(python) == len(PYTHON)

    def test_is_fenced(self) -> None:
        """Code by indentation would not be seen as a block."""
        for page, text in pages.texts().items():
            prose = pages.without_blocks(text)
            assert not re.search(r"(?:^|\n)\n {4}(?![ ]*(?:[-*]|\d+\.) )\S", prose), page

    @pytest.mark.parametrize(
        "text",
        [
            "```bash\npip install something\n```",
            "```python\nprint(1)\n```",
            "```text\nAn output of old.\n```",
            "<!-- another: begin -->\n```text\nAn output of old.\n```",
            "```\nbatchadvisor run model.py\n```",
            "~~~json\n{}\n~~~",
            "- in a list\n\n  ```yaml\n  a: 1\n  ```",
            "- ```sh\n  ls\n  ```",
        ],
    )
    def test_without_a_test_is_named(self, text: str) -> None:
        (block,) = pages.blocks_of(f"# A page\n\n{text}\n", "docs/page.md")
        assert not is_tested(block)


def _fill(folder: Path) -> Path:
    """Makes it a user's folder, with the scripts that the commands name."""
    (folder / "bench.py").write_text(pages.python_block("# bench.py"))
    (folder / "package").mkdir()
    (folder / "package/__init__.py").touch()
    for name, script in (
        ("model.py", "plain.py"),
        ("train.py", "argparse_validate_first.py"),
        ("package/train.py", "argparse_validate_first.py"),
        ("train_ddp.py", "train_ddp.py"),
        ("gpt.py", "no_loader.py"),
        ("rollouts.py", "rollouts.py"),
    ):
        shutil.copy(ROOT / "tests/scripts" / script, folder / name)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return _fill(tmp_path)


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder after the first run, and the second."""
    folder = _fill(tmp_path_factory.mktemp("readme"))
    assert FIRST in _commands()
    # With traces, which commands look at: a busy machine has to have time for them.
    options = ("-o", "batchadvisor-runs/model", *SHORT, "--budget", "12s")
    _run_well(FIRST, folder, *options)
    runs = folder / "batchadvisor-runs"
    shutil.copytree(runs / "model", runs / "model-after")
    device = Allocator()  # a machine without a GPU makes no snapshot
    train(device, 8, leak=5000)
    (folder / "snapshot.pickle").write_bytes(pickle.dumps(device.snapshot()))
    _fill_records(folder / "records")
    return folder


def _fill_records(folder: Path) -> None:
    """Types of GPU, on paper, and a job of two ranks."""
    for name in ("a100", "t4"):
        plans.write(folder / name, plans.type_record(name))
    plans.write(folder / "two-ranks", plans.job_record("a100", 64, 0.05, 0.01))


@pytest.mark.slow
@pytest.mark.parametrize("line", RUNS)
def test_a_command_that_runs(folder: Path, line: str) -> None:
    options = [] if "--dry-run" in line else ["--no-profile", *SHORT]
    _, verb, *words = shlex.split(line, comments=True)
    done = run_preloaded(verb, *options, *words, folder=folder)
    assert done.code == 0, f"{line}\n{done}"
    assert done.stdout.strip(), line


@pytest.mark.slow
@pytest.mark.parametrize("line", LOOKS)
def test_a_command_that_looks_at_it(probed: Path, line: str) -> None:
    command = shlex.split(line, comments=True)
    server = next((start for start in SERVERS if line.startswith(start)), None)
    if line.startswith("batchadvisor estimate ") and "--" in line:  # without options it starts anew
        done = run_preloaded(*command[1:], folder=probed)
        assert (done.code, bool(done.stdout.strip())) == (0, True), done
        return
    if server is None:
        assert command[0] == "batchadvisor"
        _run_well(line, probed)
        return
    host = ["--host", "127.0.0.1"] if command[0] == "tensorboard" else []
    serve([*command, *host], probed, *SERVERS[server])


def test_the_gate_runs_the_two_commands_that_install() -> None:
    gate = (ROOT / ".ci/run").read_text()
    start = "python3 -m venv .venv && "
    assert f"grep '^{start}' README.md" in gate, "the gate takes the commands from the README"
    lines = {path: path.read_text().splitlines() for path in pages.paths()}
    run = [line for line in lines[README] if line.startswith(start)]
    assert len(run) == 2
    assert "run examples/char_gpt.py" in run[0]
    assert run[1].endswith("pytest")
    elsewhere = {line for path in lines for line in lines[path] if line.startswith(INSTALLING)}
    assert elsewhere == set(run), "the gate runs those of the README alone"


@pytest.mark.slow
def test_the_loop_that_asks_runs(folder: Path) -> None:
    code = pages.python_block("# a loop of your own")
    code += "\nassert found.record.num_workers_started >= 1 and not found.not_restored\n"
    done = _run([sys.executable, "-c", code], folder, with_our_commands())
    assert done.returncode == 0, done.stderr
    assert "All of it: batchadvisor show batchadvisor-runs/train_step-" in done.stdout


@pytest.mark.slow
def test_the_notebook_runs(folder: Path) -> None:
    code = pages.python_block("import batchadvisor\nimport torch\n\nmodel = torch.nn.Linear(512")
    code += "\nprint(type(found).__name__, found.batch_size)\n"
    code += "assert found._repr_html_()\n"
    code += "assert {trial.outcome for trial in found.trials} == {'ok'}\n"
    done = _run([sys.executable, "-c", code], folder, with_our_commands())
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"ProbedRun \d+", done.stdout.splitlines()[-1])


def test_the_callback_runs(folder: Path) -> None:
    (folder / "train.py").write_text(pages.python_block("# in your loop"))
    done = _run([sys.executable, "train.py"], folder)
    assert done.returncode == 0, done.stderr
    assert "157 optimizer steps, 5000 samples" in done.stderr
    assert (folder / "runs/one/record.json").exists()
    said = _items(done.stderr)
    for label, words in _items(pages.block("callback").text).items():
        assert label in said
        assert label in MEASURED or said[label].startswith(words)  # a second warning may follow


MEASURED = ("Batch size 32 as it ran", "step", "utilisation", "limit", "memory")
"""What the callback says in other words on another day."""


def _items(text: str) -> dict[str, str]:
    """What the callback prints, by its labels, however its lines are broken."""
    items: dict[str, str] = {}
    label = ""
    for line in text.splitlines():
        if not line.startswith(" " * 4):
            label = re.split(r": |  ", line.strip())[0]
        items[label] = " ".join([*items.get(label, "").split(), *line.split()])
    return items


def test_the_error_is_the_one_that_is_printed(folder: Path) -> None:
    done = _run([sys.executable, "-m", "batchadvisor", "run", "-q", "rollouts.py"], folder)
    assert done.returncode == 1
    assert done.stderr.strip() == pages.block("error").text.partition("\n")[2]


def _run_well(line: str, folder: Path, *options: str) -> None:
    """Runs a command of a page, with options after its verb."""
    command = shlex.split(line, comments=True)
    command[2:2] = options
    done = _run(command, folder, with_our_commands())
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    assert done.stdout.strip(), line


def _run(
    command: list[str], folder: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
