"""A rank that fails: the window ends on all of them, soon, and the search goes on."""

import socket

import pytest

from ..end_to_end import driver
from .jobs import LARGEST, QUICK, TRAIN, left_of, run_ranks

pytestmark = pytest.mark.slow


OWN_AND_BAD = "16,256"
"""The script's own size, which needs no confirmation in a fresh process, and one that fails."""


def searched(found):
    """Trials of the search by their size."""
    return {trial.batch_size: trial for trial in found.searched}


def test_one_rank_out_of_memory(tmp_path):
    """The size failed for all, the rank is named, and the search went on below it."""
    found = run_ranks(2, *LARGEST, "32,256", folder=tmp_path, PLANT_OOM="1:200")
    assert found.code == 0, found
    assert left_of(found) == []
    trial = searched(found)[256]
    assert trial.outcome == "out_of_memory"
    assert trial.detail.startswith("rank 1: ")
    assert trial.elapsed_s < 30, "the other rank was waited for too long"
    assert searched(found)[32].ran
    assert any(trial.purpose == "confirm" and trial.ran for trial in found.record.trials)


def test_a_killed_rank(tmp_path):
    found = run_ranks(2, *LARGEST, "32,256", folder=tmp_path, PLANT_KILL="1:200")
    assert left_of(found) == []
    trial = searched(found)[256]
    assert trial.outcome in ("crashed", "out_of_memory"), trial  # SIGKILL may mean either
    assert trial.detail.startswith("rank 1: ")
    assert searched(found)[32].ran
    # The next window begins soon, with a process group of its own on every rank.
    after = found.record.trials[trial.ordinal + 1]
    assert after.ran
    began_s = after.ended_s - after.elapsed_s
    # What a start takes on this machine, the first one has shown.
    assert began_s - trial.ended_s < 5 * found.record.discovery.setup_s + 10


@pytest.mark.parametrize(
    ("planted", "outcome", "said"),
    [
        ("PLANT_RAISE", "exception", "rank 1: ValueError: planted: bad value"),
        ("PLANT_HANG", "hung", "rank 1: "),
    ],
)
def test_a_rank_that_fails_ends_the_size_on_all_in_bounded_time(planted, outcome, said, tmp_path):
    words = (*LARGEST, OWN_AND_BAD, "--timeout", "5s")
    found = run_ranks(2, *words, folder=tmp_path, **{planted: "1:200"})
    assert left_of(found) == []
    trial = searched(found)[256]
    assert trial.outcome == outcome
    assert trial.detail.startswith(said), trial.detail
    assert trial.elapsed_s < 45
    assert searched(found)[16].ran


def test_another_world_size_than_the_launchers(tmp_path):
    """The script makes a process group of one rank in each of two."""
    found = run_ranks(2, *LARGEST, "32", folder=tmp_path, PLANT_WORLD="alone")
    assert found.code == 1, found
    assert left_of(found) == []
    assert "process group has 1 ranks and the launcher started 2" in found.error


class TestPortInUse:
    def test_the_jobs_own_address_is_refused_at_once(self, tmp_path):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            rank = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
            found = driver.run("run", *QUICK, TRAIN, folder=tmp_path, variables={**where, **rank})
        found.assert_refused()
        assert f"cannot listen on 127.0.0.1:{port}" in found.error
        assert "MASTER_PORT" in found.error

    def test_a_port_that_the_script_finds_taken_is_replaced(self, tmp_path):
        """Somebody else takes the agreed port before the script's own process group does."""
        taken = tmp_path / "taken"
        found = run_ranks(2, *LARGEST, "32", folder=tmp_path, PLANT_PORT=str(taken))
        assert found.code == 0, found
        assert left_of(found) == []
        first, *_ = taken.read_text().split()
        assert int(first) > 0
        assert all(trial.ran for trial in found.record.trials)
