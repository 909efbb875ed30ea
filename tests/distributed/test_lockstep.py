"""A DDP script on several ranks: every size runs on all of them, in step."""

import re

import pytest

from ..end_to_end import driver
from .jobs import QUICK, TRAIN, left_of, run_ranks, torchrun

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two ranks through `--nproc-per-node`."""
    folder = tmp_path_factory.mktemp("two")
    return run_ranks(2, "--json", "--sizes", "16,128", folder=folder)


class TestTwoRanks:
    def test_an_answer_and_nothing_left(self, two):
        assert two.code == 0, two
        assert left_of(two) == []
        assert two.record.state == "finished"
        assert two.advice.recommended.batch_size in (16, 128)

    def test_every_trial_ran_on_both_ranks(self, two):
        assert two.record.trials
        for trial in two.record.trials:
            assert trial.ran, trial
            assert [one.rank for one in trial.ranks] == [0, 1]
            assert all(one.outcome == "ok" for one in trial.ranks)
            if trial.kind == "timed":
                assert all(one.step_s is not None for one in trial.ranks)

    def test_the_trial_speaks_for_the_slowest_and_the_fullest(self, two):
        for trial in two.record.trials:
            assert trial.memory.peak_bytes == max(one.peak_bytes for one in trial.ranks)
            if trial.step_s is not None:
                assert trial.step_s.median == max(one.step_s.median for one in trial.ranks)

    def test_the_ranks_and_the_shape_are_recorded(self, two):
        found = two.record.distribution
        assert (found.world_size, found.launcher) == (2, "torchrun")
        assert [(one.rank, one.local_rank, one.device) for one in found.ranks] == [
            (0, 0, "cpu"),
            (1, 1, "cpu"),
        ]
        assert found.parallelism.shapes == ("DistributedDataParallel",)
        assert (found.parallelism.world_size, found.parallelism.backend) == (2, "gloo")

    def test_steps_were_paired_on_both_ranks(self, two):
        found = two.record.distribution.communication
        assert [one.batch_size for one in found] == [16, 128]
        for one in found:
            assert [rank.rank for rank in one.ranks] == [0, 1]
            for rank in one.ranks:
                assert 8 <= len(rank.compute_s) == len(rank.step_s) == len(rank.exposed_s)
                assert min(rank.compute_s) > 0

    def test_the_epoch_law_is_in_the_advice(self, two):
        scaling = two.advice.scaling
        assert scaling.batch_size == two.advice.recommended.batch_size
        assert scaling.verdict in ("pays", "does not pay", "cannot tell")
        assert [one.world_size for one in scaling.points] == [1, 2, 4, 8, 16, 32, 64]
        measured = [one.world_size for one in scaling.points if one.confidence == "measured"]
        assert measured == [2]

    def test_the_log_of_each_rank_is_kept(self, two):
        assert (two.run_folder / "script.log").exists()
        assert (two.run_folder / "script-rank1.log").exists()


class TestTorchrun:
    def test_four_ranks_that_torchrun_started(self, tmp_path):
        found = driver.run(
            "run", *QUICK, "--sizes", "16", TRAIN, folder=tmp_path, launcher=torchrun(4)
        )
        assert found.code == 0, found
        assert left_of(found) == []  # but torchrun's own folder for logs
        assert (
            len(re.findall(r"^(?:\x1b\[[\d;]*m)*(?:Use|Keep|Of the) ", found.stdout, re.MULTILINE))
            == 1
        )
        assert found.record.distribution.world_size == 4
        assert all(len(trial.ranks) == 4 and trial.ran for trial in found.record.trials)
