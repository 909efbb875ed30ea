"""What was planted into the steps of a DDP script is found again."""

import pytest

from .jobs import left_of, run_ranks, start_ranks

pytestmark = pytest.mark.slow

SLOW_S = 0.04


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """The second rank takes longer in every step."""
    folder = tmp_path_factory.mktemp("slow")
    return run_ranks(2, "--json", "--sizes", "64", folder=folder, PLANT_SLOW=f"1:{SLOW_S}")


class TestStraggler:
    def test_it_is_named(self, slow):
        assert slow.code == 0, slow
        assert left_of(slow) == []
        scaling = slow.advice.scaling
        assert scaling.straggler == 1
        assert scaling.waits_s[1] == 0
        assert scaling.waits_s[0] == pytest.approx(SLOW_S, rel=0.5)
        assert any(finding.rule == "distribution.straggler" for finding in slow.advice.findings)

    def test_waiting_is_no_transfer(self, slow):
        # Rank 0 waits inside its collective; the rank that comes last waits for nobody.
        (found,) = slow.record.distribution.communication
        first, second = (sorted(rank.exposed_s)[len(rank.exposed_s) // 2] for rank in found.ranks)
        assert first > second + SLOW_S / 2
        assert slow.advice.scaling.wire_s.median < SLOW_S

    def test_tcomp_is_that_of_the_slowest(self, slow):
        assert slow.advice.scaling.compute_s.median > SLOW_S


@pytest.mark.timeout(600)
def test_lock_step_and_a_single_process_agree(tmp_path):
    """30 ms a step and 0.2 ms a sample: the same step times, whoever measures them.

    The planted cost is sleep, so that the two jobs, at the same time, disturb each other little.
    """
    fixed_s, per_sample_s = 0.03, 0.0002
    jobs = {}
    for num in (1, 2):
        folder = tmp_path / str(num)
        folder.mkdir()
        options = ("--json", "--sizes", "64,256", "--budget", "15s")
        planted = f"{fixed_s}:{per_sample_s}"
        jobs[num] = start_ranks(num, *options, folder=folder, preloaded=True, PLANT_COST=planted)
    done = {num: job.finish() for num, job in jobs.items()}
    assert {num: job.code for num, job in done.items()} == {1: 0, 2: 0}, done
    times = {
        num: {
            trial.batch_size: trial.step_s.median
            for trial in job.record.trials
            if trial.purpose == "search" and trial.kind == "timed" and trial.ran
        }
        for num, job in done.items()
    }
    assert 64 in times[1].keys() & times[2].keys(), times
    for size in times[1].keys() & times[2].keys():
        alone_s, together_s = times[1][size], times[2][size]
        assert min(alone_s, together_s) >= fixed_s + per_sample_s * size, size
        assert alone_s == pytest.approx(together_s, rel=0.3), size
