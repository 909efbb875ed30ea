"""A rank that fails: the window ends on all of them, soon, and the search goes on."""

import socket

import pytest

from ..end_to_end import driver
from .jobs import LARGEST, QUICK, TRAIN, left_of, run_ranks

pytestmark = pytest.mark.slow


OWN_AND_BAD = "16,256"
"""The script's own size, which needs no confirmation in a fresh process, and one that fails."""


def outcomes(record):
    return {trial.batch_size: trial for trial in record.trials if trial.purpose == "search"}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The second rank refuses memory from 200 samples on."""
    folder = tmp_path_factory.mktemp("oom")
    return run_ranks(2, *LARGEST, "32,256", folder=folder, PLANT_OOM="1:200")


class TestOneRankOutOfMemory:
    def test_the_size_failed_for_all_and_the_rank_is_named(self, found):
        assert found.code == 0, found
        assert left_of(found) == []
        trial = outcomes(found.record)[256]
        assert trial.outcome == "out_of_memory"
        assert trial.detail.startswith("rank 1: ")
        assert trial.elapsed_s < 30, "the other rank was waited for too long"

    def test_the_search_went_on_below_it(self, found):
        assert outcomes(found.record)[32].ran
        assert any(trial.purpose == "confirm" and trial.ran for trial in found.record.trials)


class TestOtherFaults:
    def test_a_killed_rank(self, tmp_path):
        found = run_ranks(2, *LARGEST, "32,256", folder=tmp_path, PLANT_KILL="1:200")
        assert left_of(found) == []
        trial = outcomes(found.record)[256]
        assert trial.outcome in ("crashed", "out_of_memory"), trial  # SIGKILL may mean either
        assert trial.detail.startswith("rank 1: ")
        assert outcomes(found.record)[32].ran
        # The next window begins soon, with a process group of its own on every rank.
        after = found.record.trials[trial.ordinal + 1]
        assert after.ran
        began_s = after.ended_s - after.elapsed_s
        # What a start takes on this machine, the first one has shown.
        assert began_s - trial.ended_s < 5 * found.record.discovery.setup_s + 10

    def test_an_exception_on_one_rank_keeps_what_was_measured(self, tmp_path):
        found = run_ranks(2, *LARGEST, OWN_AND_BAD, folder=tmp_path, PLANT_RAISE="1:200")
        assert left_of(found) == []
        trial = outcomes(found.record)[256]
        assert trial.outcome == "exception"
        assert trial.detail == "rank 1: ValueError: planted: bad value"
        assert outcomes(found.record)[16].ran

    def test_a_rank_that_hangs_is_a_hang_of_all_in_bounded_time(self, tmp_path):
        found = run_ranks(
            2, *LARGEST, OWN_AND_BAD, "--timeout", "5s", folder=tmp_path, PLANT_HANG="1:200"
        )
        assert left_of(found) == []
        trial = outcomes(found.record)[256]
        assert trial.outcome == "hung"
        assert trial.detail.startswith("rank 1: "), trial.detail
        assert trial.elapsed_s < 45
        assert outcomes(found.record)[16].ran

    def test_another_world_size_than_the_launchers(self, tmp_path):
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
