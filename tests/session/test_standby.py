"""The process that stands by: started with the first one, asleep meanwhile, ended with the rest."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from batchadvisor.probes.devices import host
from batchadvisor.probes.process.worker_environment import worker_environment
from batchadvisor.probes.process.worker_launch import Standby
from batchadvisor.records import Goal
from batchadvisor.reports.terminal.progress import NullDisplay
from batchadvisor.session.run import Run
from batchadvisor.session.setup.options import RunOptions
from batchadvisor.session.workers import standby as session_standby

from ..end_to_end.driver import SCRIPTS
from .test_workers import assert_ended, interrupted_once, is_alive

COUNTS_ITS_STARTS = """
with open("starts.txt", "a") as file:
    print(file=file)
"""
STARTS_ONE = """
import json, sys, time
from batchadvisor.reports.terminal.progress import NullDisplay
from batchadvisor.session.run import Run, RunOptions
with Run(RunOptions(script="train.py", device="cpu"), NullDisplay()) as run:
    run.workers._stand_by(run.workers._order(0))
    print(run.workers.reserve.standby.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def room(tmp_path, monkeypatch):
    """A folder with a script, on a machine that has two cores and some memory, and may be busy."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(COUNTS_ITS_STARTS + (SCRIPTS / "plain.py").read_text())
    monkeypatch.setattr(host, "num_cores", lambda: 2)
    monkeypatch.setattr(host, "available_bytes", lambda: (8 << 30, "of the test"))
    monkeypatch.setattr(session_standby, "WAIT_S", 60.0)


def run_of(**changes):
    options = {"script": "train.py", "device": "cpu", "output": Path("out"), **changes}
    return Run(RunOptions(goal=Goal(budget_s=16), **options), NullDisplay())


@pytest.fixture
def run():
    """A run that has started a process that stands by, and nothing else."""
    with run_of() as run:
        run.workers._stand_by(run.workers._order(0))
        yield run
        standby = run.workers.reserve.standby
    if standby is not None:
        assert not is_alive(standby.pid)


def cpu_s(pid):
    """CPU time of a process so far, in seconds."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def files_of(pid):
    """What a process has mapped or open."""
    links = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]  # noqa: PTH115
    return Path(f"/proc/{pid}/maps").read_text() + "\n".join(links)


def test_the_next_process_of_a_run_is_the_one_that_stands_by():
    with run_of() as run:
        first = run.workers.start()
        standby = run.workers.reserve.standby
        assert standby.pid != first.pid
        assert Path("starts.txt").read_text() == "\n"
        second = run.workers.start()
        assert second.pid == standby.pid
        assert run.workers.reserve.standby is None
        assert Path("starts.txt").read_text() == "\n\n"
        assert run.writer.record.num_workers_started == 2
        assert not is_alive(first.pid)
    assert_ended([first.pid, second.pid])


def test_it_sleeps_with_torch_in_it_and_knows_no_device(run):
    run.workers.reserve.settle()
    pid = run.workers.reserve.standby.pid
    used_s = cpu_s(pid)
    time.sleep(0.5)
    assert cpu_s(pid) <= used_s + 0.02  # a tick or two of the kernel's clock
    assert "libtorch" in files_of(pid)
    assert "/dev/nvidia" not in files_of(pid)
    assert not Path("starts.txt").exists()  # the script was left alone


def test_its_imports_search_the_folder_of_the_script_first():
    """As plain Python does; it ends then, as any process of the script would."""
    Path("torch.py").write_text("open('shadow.txt', 'w'); raise ImportError('beside the script')")
    with run_of() as run:
        run.workers._stand_by(run.workers._order(0))
        assert not run.workers.reserve.standby.is_asleep(60.0)
    assert Path("shadow.txt").exists()


def test_one_that_has_died_or_began_otherwise_is_not_taken(run):
    workers = run.workers
    workers.reserve.end()  # pytest changes the environment between a fixture and its test
    workers._stand_by(run.workers._order(0))
    order = workers._order(1)
    environment = worker_environment("cpu", workers._scratch.path)
    assert workers.reserve.standby.fits(order, environment)
    assert not workers.reserve.standby.fits(order, {**environment, "CUDA_VISIBLE_DEVICES": "1"})
    os.kill(workers.reserve.standby.pid, signal.SIGKILL)
    assert_ended([workers.reserve.standby.pid])
    assert workers.reserve.take(order, environment) is None
    assert workers.reserve.standby is None


def test_one_that_takes_too_long_is_given_up(run, monkeypatch):
    """The first trial is not kept waiting, and nothing runs beside it."""
    monkeypatch.setattr(session_standby, "WAIT_S", 0.0)
    pid = run.workers.reserve.standby.pid
    run.workers.reserve.settle()
    assert run.workers.reserve.standby is None
    assert not is_alive(pid)


def test_it_makes_room_when_memory_becomes_short(run, monkeypatch):
    pid = run.workers.reserve.standby.pid
    run.workers.reserve.make_room()
    assert is_alive(pid)
    monkeypatch.setattr(host, "available_bytes", lambda: (1 << 30, "of the test"))
    run.workers.reserve.make_room()
    assert not is_alive(pid)


def test_ctrl_c_at_the_end_of_a_run(monkeypatch):
    with run_of() as run:
        run.workers._stand_by(run.workers._order(0))
        pid = run.workers.reserve.standby.pid
        interrupted_once(monkeypatch, Standby, "end")
        with pytest.raises(KeyboardInterrupt):
            run.workers.close()
    assert_ended([pid])


def test_kill_9_of_the_supervisor_ends_it_too():
    """The kernel does: nobody else is left to."""
    command = [sys.executable, "-c", STARTS_ONE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        pid = int(process.stdout.readline())
        assert is_alive(pid)
        process.kill()
    assert_ended([pid])


def test_one_whose_supervisor_was_killed_before_it_began():
    """It could not ask the kernel to end with it; it imports nothing more."""
    read, theirs = os.pipe()
    answers, write = os.pipe()
    os.close(theirs)
    code = f"from batchadvisor.probes.worker.main import main; main({read}, {write})"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code],
        pass_fds=(read, write), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    for end in (read, answers, write):
        os.close(end)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert " torch\n" not in done.stderr


@pytest.mark.parametrize(
    ("changes", "machine"),
    [
        ({"memory_limit_bytes": 4 << 30}, {}),
        ({"device": "cpu:1"}, {}),
        ({"arguments": ("{batch_size}",), "door": "template"}, {}),
        ({}, {"num_cores": 1}),
        ({}, {"available_bytes": (1 << 30, "of the test")}),
        ({}, {"available_bytes": None}),
    ],
)
def test_where_none_stands_by(monkeypatch, changes, machine):
    with run_of() as run:
        assert run.workers.reserve.has_room()
    for name, value in machine.items():
        monkeypatch.setattr(host, name, lambda value=value: value)
    with run_of(**changes, output=Path("other")) as run:
        assert not run.workers.reserve.has_room()
