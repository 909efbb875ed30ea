"""Ranks that the script starts itself, through torch.multiprocessing."""

import pytest
from batchadvisor.probes.distributed.rendezvous import free_port

from ..end_to_end import driver
from ..end_to_end.driver import SCRIPTS
from .jobs import LARGEST, QUICK, left_of

pytestmark = pytest.mark.slow

SPAWNED = SCRIPTS / "spawn_ddp.py"
PROGRAMS = SCRIPTS / "starts_other_rank.py"


def assert_both_ran_in_step(found):
    assert found.code == 0, found
    job = found.record.distribution
    assert (job.world_size, job.launcher) == (2, "the script itself")
    for trial in found.record.trials:
        assert trial.ran, trial
        assert [rank.rank for rank in trial.ranks] == [0, 1]
    assert [len(size.ranks) for size in job.communication] == [2]


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_they_are_steered_in_lock_step(method, tmp_path):
    """`spawn` is what torch recommends, `fork` what accelerate's launchers for notebooks use."""
    # Four starts of Python, one after the other: a busy machine uses up a small budget before the
    # paired steps.
    options = ("run", *QUICK, *LARGEST, "64", "--budget", "60s")
    found = driver.run_preloaded(*options, SPAWNED, method, folder=tmp_path)
    assert_both_ran_in_step(found)
    assert found.left == []  # semaphores as well, whose tracker was killed with the ranks
    assert found.record.distribution.parallelism.shapes == ("DistributedDataParallel",)


def test_a_rank_that_is_a_program_is_steered(tmp_path):
    """The script itself asserts that the start-up hook left no trace in its environment."""
    options = ("run", *QUICK, *LARGEST, "64", "--budget", "60s")
    found = driver.run_preloaded(*options, PROGRAMS, free_port(), folder=tmp_path)
    assert_both_ran_in_step(found)
    assert left_of(found) == []
    assert [rank.rank for rank in found.record.distribution.ranks] == [0, 1]
    # Two processes in all, one after the other, had the second rank each time.
    assert found.record.num_workers_started == 2


@pytest.mark.parametrize(
    ("script", "planted", "outcome"),
    [
        (SPAWNED, {"PLANT_OOM": "200"}, "out_of_memory"),
        (PROGRAMS, {"PLANT": "oom"}, "out_of_memory"),
        (PROGRAMS, {"PLANT": "kill"}, "crashed"),
        (PROGRAMS, {"PLANT": "hang"}, "hung"),
    ],
    ids=["a spawned rank", "out of memory", "killed", "hangs"],
)
def test_a_rank_that_fails_alone_is_named(script, planted, outcome, tmp_path):
    # The script's own size, which needs no confirmation in a fresh process, and one that fails.
    options = ("run", *QUICK, *LARGEST, "16,256")
    words = ("--timeout", "5s", script, free_port()) if script == PROGRAMS else (script,)
    given = {"folder": tmp_path, "variables": planted, "spares": 2}
    found = driver.run_preloaded(*options, *words, **given)
    assert left_of(found) == []
    trials = {trial.batch_size: trial for trial in found.searched}
    assert trials[16].ran
    assert trials[256].outcome == outcome, trials[256]
    assert trials[256].elapsed_s < 45, "some wait was not bounded"
    assert trials[256].detail.startswith("rank 1: ")


def test_ranks_started_past_subprocess_are_refused_with_the_command(tmp_path):
    found = driver.run_preloaded("run", *QUICK, PROGRAMS, free_port(), "past", folder=tmp_path)
    assert found.code == 1, found
    assert "one of 2 ranks" in found.error
    assert "--nproc-per-node 2" in found.error
    assert left_of(found) == []


PREPARES = SCRIPTS / "spawn_prepares.py"


@pytest.mark.parametrize("arguments", [(), ("ranks",)])
def test_processes_that_prepare_data_are_no_ranks(arguments, tmp_path):
    options = ("run", *QUICK, *LARGEST, "64")
    found = driver.run_preloaded(*options, PREPARES, *arguments, folder=tmp_path, spares=4)
    assert found.code == 0, found
    assert left_of(found) == []
    record = found.record
    assert all(trial.ran for trial in record.trials)
    ranks = record.distribution.world_size if record.distribution is not None else 1
    assert ranks == (2 if arguments else 1)
    touched = {(file.path, file.action) for file in record.files}
    assert {("part-0.txt", "write"), ("part-1.txt", "write")} <= touched


def test_no_ranks_at_all_is_said_in_a_sentence(tmp_path):
    found = driver.run_preloaded("run", *QUICK, SCRIPTS / "spawn_none.py", folder=tmp_path)
    assert found.code == 1, found
    assert "Traceback" not in found.stderr
    assert "asks torch.multiprocessing for 0 ranks (nprocs=0)" in found.error
    assert found.record.state == "failed"
    assert left_of(found) == []
