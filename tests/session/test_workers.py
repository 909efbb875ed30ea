"""The start of a run that takes long, or is interrupted; the end of its worker."""

import signal
import tempfile
import time
from pathlib import Path

import msgspec
import pytest
from batchadvisor.errors import RunError
from batchadvisor.probes.devices import host
from batchadvisor.probes.process.folder_snapshot import FolderSnapshot
from batchadvisor.reports.terminal.progress import NullDisplay
from batchadvisor.session.run import Run
from batchadvisor.session.setup.options import RunOptions
from batchadvisor.session.workers import worker_pool

from ..end_to_end.driver import SCRIPTS

LEAVES_THE_GROUP = """
import subprocess
subprocess.Popen(["sleep", "600"], start_new_session=True)
open("told.txt", "w").close()
"""


class Watch:
    """Stands for the GPU's, which takes its time."""

    def follow(self, pid):
        pass

    def phase(self, phase):
        pass

    def close(self):
        pass


def interrupted_once(monkeypatch, target, name):
    """Ctrl-C comes while a method runs for the next time."""
    real = getattr(target, name)

    def method(*arguments):
        monkeypatch.setattr(target, name, real)
        signal.raise_signal(signal.SIGINT)
        return real(*arguments)

    monkeypatch.setattr(target, name, method)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def assert_ended(pids):
    deadline = time.monotonic() + 10
    while any(map(is_alive, pids)):
        assert time.monotonic() < deadline, "processes of the script live on"
        time.sleep(0.02)


@pytest.fixture
def run_of(tmp_path, monkeypatch):
    """Makes a run of a script in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def make(name):
        Path("train.py").write_text(LEAVES_THE_GROUP + (SCRIPTS / name).read_text())
        return Run(RunOptions(script="train.py", device="cpu", output=Path("out")), NullDisplay())

    return make


@pytest.mark.parametrize("step", ["scan", "wait", "watch", "files"])
@pytest.mark.slow
def test_ctrl_c_at_a_step_of_the_end(run_of, monkeypatch, step):
    with run_of("plain.py") as run:
        worker = run.workers.start()
        pids = [worker.pid, *host.descendants(worker.pid)]
        assert len(pids) == 2
        run.workers.watch = Watch()
        target, name = {
            "scan": (host, "descendants"),
            "wait": (worker._process, "wait"),
            "watch": (run.workers.watch, "follow"),
            "files": (run.writer, "add_files"),
        }[step]
        interrupted_once(monkeypatch, target, name)
        with pytest.raises(KeyboardInterrupt):
            run.workers.end()
        run.workers.end()
        assert run.workers.current is None
        assert_ended(pids)
    assert "told.txt" in {file.path for file in run.writer.record.files}


@pytest.mark.slow
def test_ctrl_c_while_ranks_are_ended(run_of, monkeypatch):
    with run_of("spawn_ddp.py") as run:
        worker = run.workers.start()
        pids = [worker.pid, *host.descendants(worker.pid)]
        interrupted_once(monkeypatch, host, "descendants")
        with pytest.raises(KeyboardInterrupt):
            run.workers.end()
        run.workers.end()
        assert_ended(pids)


@pytest.mark.parametrize("step", ["listing", "display"])
def test_ctrl_c_before_the_first_worker(run_of, tmp_path, monkeypatch, step):
    """The working folder is listed, which may take seconds; nothing is there that was not."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    target, name = {"listing": (FolderSnapshot, "_list"), "display": (NullDisplay, "start")}[step]
    interrupted_once(monkeypatch, target, name)
    with pytest.raises(KeyboardInterrupt), run_of("plain.py"):
        pass
    assert {path.name for path in tmp_path.rglob("*")} == {"temporary", "train.py"}


def test_no_place_for_temporary_files(run_of, monkeypatch):
    """One line of what and what to do, in the place of a traceback."""

    def none(**_):
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "mkdtemp", none)
    with run_of("plain.py") as run, pytest.raises(RunError, match="No usable temporary") as caught:
        run.search()
    assert "TMPDIR" in caught.value.remedy


def test_a_disk_that_is_full_from_the_start(run_of, tmp_path, fill_disk):
    """There is no record to go on with, and no empty folder is left."""

    fill_disk()
    with pytest.raises(RunError, match="No space left") as caught, run_of("plain.py") as run:
        run.search()
    assert "--resume" not in str(caught.value)
    assert {path.name for path in tmp_path.iterdir()} == {"train.py"}


class Notes(NullDisplay):
    """Keeps what people should see."""

    def __init__(self):
        self.told = []

    def note(self, text):
        self.told.append(text)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [(), ("--batch-size", "{batch_size}")])
def test_a_start_that_takes_long_says_so(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(worker_pool, "SLOW_START_S", 0.5)
    Path("train.py").write_text(
        "import time\ntime.sleep(1.5)\n" + (SCRIPTS / "shaped_by_size.py").read_text()
    )
    notes, output = Notes(), Path("out")
    options = RunOptions(script="train.py", device="cpu", output=output, arguments=arguments)
    if arguments:
        options = msgspec.structs.replace(options, door="template", forced=True)
    with Run(options, notes) as run:
        run.look()
        assert len(notes.told) == 1
        assert "train.py has run for 0.5 s and not come to its training loop" in notes.told[0]
        assert "after 10 min without a step the run ends" in notes.told[0]
        assert "it reads data, compiles or evaluates. At most" in notes.told[0]


@pytest.mark.slow
def test_processes_that_it_has_started_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(LEAVES_THE_GROUP + (SCRIPTS / "plain.py").read_text())
    notes = Notes()
    with Run(RunOptions(script="train.py", device="cpu", output=Path("out")), notes) as run:
        run.workers._note_slow_start(run.workers.start())
    (told,) = notes.told
    assert "or waits for processes that it has started" in told
