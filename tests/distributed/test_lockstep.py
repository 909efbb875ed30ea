"""A DDP script on several ranks: every size runs on all of them, in step."""

import re

import pytest

from ..end_to_end import driver
from .jobs import LARGEST, QUICK, TRAIN, left_of, run_ranks, torchrun

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two ranks through `--nproc-per-node`."""
    folder = tmp_path_factory.mktemp("two")
    # A busy machine uses up a small budget before the paired steps.
    options = ("--json", *LARGEST, "16,128", "--budget", "60s")
    return run_ranks(2, *options, folder=folder)


class TestTwoRanks:
    def test_an_answer_and_nothing_left_but_a_log_of_each_rank(self, two):
        assert two.code == 0, two
        assert left_of(two) == []
        assert two.record.state == "finished"
        assert two.advice.recommended.batch_size in (16, 128)
        assert (two.run_folder / "script.log").exists()
        assert (two.run_folder / "script-rank1.log").exists()

    def test_every_trial_ran_on_both_ranks(self, two):
        """It speaks for the slowest and the fullest."""
        assert two.record.trials
        for trial in two.record.trials:
            assert trial.ran, trial
            assert [(rank.rank, rank.outcome) for rank in trial.ranks] == [(0, "ok"), (1, "ok")]
            assert trial.memory.peak_bytes == max(rank.peak_bytes for rank in trial.ranks)
            if trial.kind == "timed":
                assert trial.step_s.median == max(rank.step_s.median for rank in trial.ranks)

    def test_the_ranks_and_the_shape_are_recorded(self, two):
        job = two.record.distribution
        assert (job.world_size, job.launcher) == (2, "torchrun")
        assert [(rank.rank, rank.local_rank, rank.device) for rank in job.ranks] == [
            (0, 0, "cpu"),
            (1, 1, "cpu"),
        ]
        assert job.parallelism.shapes == ("DistributedDataParallel",)
        assert (job.parallelism.world_size, job.parallelism.backend) == (2, "gloo")

    def test_steps_were_paired_on_both_ranks(self, two):
        pairs = two.record.distribution.communication
        assert [trial.batch_size for trial in pairs] == [16, 128]
        for pair in pairs:
            assert [rank.rank for rank in pair.ranks] == [0, 1]
            for rank in pair.ranks:
                assert 8 <= len(rank.compute_s) == len(rank.step_s) == len(rank.exposed_s)
                assert min(rank.compute_s) > 0

    def test_the_epoch_law_is_in_the_advice(self, two):
        scaling = two.advice.scaling
        assert scaling.batch_size == two.advice.recommended.batch_size
        assert scaling.verdict in ("pays", "does not pay", "cannot tell")
        assert [point.world_size for point in scaling.points] == [1, 2, 4, 8, 16, 32, 64]
        measured = [point.world_size for point in scaling.points if point.confidence == "measured"]
        assert measured == [2]

    def test_the_change_was_tried_on_both_ranks(self, two):
        """Each compiles the script with the other number: a rank alone would wait for the other."""
        assert two.advice.recommended.batch_size == 128
        said = "checked: started so, the script trains on batches of 128"
        assert two.advice.change_check == said


def test_three_ranks_that_torchrun_started(tmp_path):
    words = ("run", *QUICK, *LARGEST, "16", TRAIN)
    done = driver.run(*words, folder=tmp_path, launcher=torchrun(3))
    assert done.code == 0, done
    assert left_of(done) == []  # but torchrun's own folder for logs
    answers = re.findall(r"^(?:\x1b\[[\d;]*m)*(?:Use|Keep|Of the) ", done.stdout, re.MULTILINE)
    assert len(answers) == 1
    assert done.record.distribution.world_size == 3
    assert all(len(trial.ranks) == 3 and trial.ran for trial in done.record.trials)
