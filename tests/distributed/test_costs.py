"""What was planted into the steps of a DDP script is found again."""

import pytest

from .jobs import left_of, run_ranks, start_ranks

pytestmark = pytest.mark.slow

SLOW_S = 0.04
LONGER = ("--budget", "60s")
"""Beside other programs; a run of listed sizes ends when it has enough."""


def test_a_rank_that_takes_longer_in_every_step(tmp_path):
    planted = f"1:{SLOW_S}"
    found = run_ranks(2, "--json", "--sizes", "64", *LONGER, folder=tmp_path, PLANT_SLOW=planted)
    assert found.code == 0, found
    assert left_of(found) == []
    scaling = found.advice.scaling
    assert scaling.straggler == 1
    assert scaling.waits_s[1] == 0
    assert scaling.waits_s[0] >= 0.5 * SLOW_S
    if not any(trial.contended for trial in found.record.trials):
        assert scaling.waits_s[0] == pytest.approx(SLOW_S, rel=0.5)
    assert "distribution.straggler" in found.findings
    # Waiting is no transfer: rank 0 waits inside its collective, the last one for nobody.
    (pairs,) = found.record.distribution.communication
    first, second = (sorted(rank.exposed_s)[len(rank.exposed_s) // 2] for rank in pairs.ranks)
    assert first > second + SLOW_S / 2
    assert scaling.wire_s.median < SLOW_S
    # The job computes as long as its slowest rank.
    assert scaling.compute_s.median > SLOW_S


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
        options = ("--json", "--sizes", "64,256", *LONGER)
        planted = f"{fixed_s}:{per_sample_s}"
        jobs[num] = start_ranks(num, *options, folder=folder, preloaded=True, PLANT_COST=planted)
    timed = {}
    for num, job in jobs.items():
        done = job.finish()
        assert done.code == 0, done
        timed[num] = {
            trial.batch_size: trial
            for trial in done.searched
            if trial.kind == "timed" and trial.ran
        }
    assert 64 in timed[1].keys() & timed[2].keys(), timed
    for size in timed[1].keys() & timed[2].keys():
        trials = timed[1][size], timed[2][size]
        alone_s, together_s = (trial.step_s.median for trial in trials)
        assert min(alone_s, together_s) >= fixed_s + per_sample_s * size, size
        if not any(trial.contended for trial in trials):
            assert alone_s == pytest.approx(together_s, rel=0.3), size
