"""The two examples, as a user runs them: the answer is sound."""

import pytest
from batchadvisor.advisor.measured.thresholds import BUDGET_SPENT

from .driver import EXAMPLES, KEPT, changed_line, run

BUDGET = {"char_gpt": "30s", "resnet18_cifar10": "90s"}
"""Whole: the start counts up to a third, and the confirmation and the last batch are within it."""
SCRIPT = {"char_gpt": (8, 15625), "resnet18_cifar10": (16, 10000)}


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("name", ["char_gpt", "resnet18_cifar10"])
def test_a_sound_answer(name, tmp_path):
    """With nothing beside it: a neighbour that comes and goes makes one size look faster."""
    options = ("--json", "-q", "-o", "out", "--no-profile", "--budget", BUDGET[name])
    done = run("run", *options, EXAMPLES / f"{name}.py", folder=tmp_path)
    native, num_samples = SCRIPT[name]
    assert done.code == 0, done
    assert done.stderr == ""
    assert done.left == []
    record, advice = done.record, done.advice
    assert record.discovery.native_batch_size == native
    assert record.discovery.primary.num_samples == num_samples
    size = advice.recommended.batch_size

    # The last batch; another size's was tried, or nothing after the confirmation.
    assert advice.tail.last_batch == num_samples % size
    assert advice.tail.steps_per_epoch == -(-num_samples // size)
    spent = record.stop_reason == BUDGET_SPENT
    assert spent is ("search.cut_short" in {finding.rule for finding in advice.findings})
    check, kept = advice.tail_check, advice.standing in KEPT
    # The search may end by itself, and leave no time for a fresh process after it.
    once = advice.sureness == "measured once"
    assert not once or kept or record.search_s > record.goal.budget_s / 3
    untried = check is None and (spent or once or kept)
    if advice.tail.last_batch and not untried:
        assert (check.num_samples, check.outcome) == (num_samples % size, "ok")
        assert check.num_non_finite == 0
    for nearest in advice.tail.nearest_clean:
        assert num_samples % nearest == 0 or num_samples % nearest >= nearest / 2

    verb = "Keep" if size == native else "Use"
    assert advice.headline.startswith(f"{verb} batch size {size}: ")
    if not kept:
        trials = [trial for trial in record.trials if trial.batch_size == size]
        assert once or any(trial.purpose == "confirm" and trial.outcome == "ok" for trial in trials)
        in_doubt = once or advice.sureness == "not confirmed"
        assert 12 <= size <= 256 or ((size, advice.standing) == (native, "own") and in_doubt)
        assert advice.native.batch_size == native
        assert advice.recommended.samples_per_s.high >= advice.native.samples_per_s.median
    if size == native:
        because = f"the script's own {native}" if kept else "the size the script has already"
        if advice.standing == "too noisy":
            because = f"The script keeps its own {native} until a measurement tells"
        assert because in advice.reason
        assert advice.change == "nothing to change"
        return
    assert not kept
    file, line, before, after = changed_line(advice.change)
    assert 'add_argument("--batch-size"' in file.read_text().splitlines()[line - 1]
    assert (before, after) == (f"default={native}", f"default={size}")
    assert f"--batch-size {size}" in advice.change
