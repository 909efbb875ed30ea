"""Ctrl-C and a rank whose supervisor dies: what was measured is kept, nothing stays."""

import os
import signal
import time
from pathlib import Path

import pytest

from ..end_to_end import driver
from .jobs import QUICK, TRAIN, left_of

pytestmark = pytest.mark.slow


def start(folder, *, preloaded=True):
    options = ("run", *QUICK, "--nproc-per-node", "2", TRAIN)
    started = driver.start(*options, folder=folder, preloaded=preloaded)
    started.wait_for(lambda: driver.read_record(folder / "out").trials, "the first trial")
    return started


def test_ctrl_c_keeps_what_was_measured(tmp_path):
    started = start(tmp_path)
    started.press_ctrl_c()
    done = started.finish()
    assert done.code == 130, done
    assert left_of(done) == []
    assert "Traceback" not in done.stderr
    assert done.record.state == "interrupted"
    assert any(trial.ran for trial in done.record.trials)
    assert "batchadvisor run --resume out --nproc-per-node 2 -q" in done.stdout


@pytest.mark.parametrize("processes", [2, 3, 4], ids=["launcher", "one rank", "both ranks"])
def test_ctrl_c_before_the_ranks_have_met(tmp_path, processes):
    started = driver.start("run", *QUICK, "--nproc-per-node", "2", TRAIN, folder=tmp_path)
    started.wait_for(lambda: len(started.processes()) >= processes, f"{processes} processes")
    started.press_ctrl_c()
    done = started.finish()
    assert (done.code, done.stderr.strip()) == (130, "Interrupted.")
    assert done.stdout == ""
    assert left_of(done) == []


@pytest.mark.parametrize("presses", [2, 3])
def test_ctrl_c_again_and_again(tmp_path, presses):
    started = start(tmp_path)
    for _ in range(presses):
        started.press_ctrl_c()
        time.sleep(0.1)
    done = started.finish()
    assert done.code == 130, done
    assert left_of(done) == []


def test_the_launchers_starter_is_killed(tmp_path):
    started = start(tmp_path)
    started.process.kill()
    done = started.finish(killed=True)
    assert left_of(done) == []


def test_a_rank_whose_supervisor_is_killed(tmp_path):
    started = start(tmp_path, preloaded=False)
    (rank,) = (
        pid
        for pid in (int(process.split()[0]) for process in started.processes())
        if b"RANK=1" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        and b"batchadvisor\0run" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    os.kill(rank, signal.SIGKILL)
    done = started.finish(killed=True)  # its temporary folder is lost with it
    assert done.code != 0
    assert left_of(done) == []
    assert done.record.state in ("interrupted", "failed")
    assert any(trial.ran for trial in done.record.trials)
