"""The two examples, as a user runs them: the answer is sound."""

import pytest
from batchadvisor.advisor.measured.thresholds import BUDGET_SPENT

from .driver import EXAMPLES, KEPT, changed_line, run

BUDGET = {"char_gpt": "30s", "resnet18_cifar10": "45s"}
"""Whole: the start counts up to a third, and the confirmation and the last batch are within it."""
SCRIPT = {"char_gpt": (8, 15625), "resnet18_cifar10": (16, 10000)}


@pytest.fixture(scope="module")
def probed(tmp_path_factory):
    done = {}

    def get(name):
        if name not in done:
            folder = tmp_path_factory.mktemp(name)
            options = ("--json", "-q", "-o", "out", "--no-profile", "--budget", BUDGET[name])
            done[name] = run("run", *options, EXAMPLES / f"{name}.py", folder=folder)
        return done[name]

    return get


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("name", ["char_gpt", "resnet18_cifar10"])
class TestExamples:
    """With nothing beside them: a neighbour that comes and goes makes one size look faster."""

    def test_a_sound_answer(self, probed, name):
        done = probed(name)
        native, num_samples = SCRIPT[name]
        assert done.code == 0, done
        assert done.stderr == ""
        assert done.left == []
        record, advice = done.record, done.advice
        assert record.discovery.native_batch_size == native
        assert record.discovery.primary.num_samples == num_samples
        chosen = advice.recommended
        trials = [trial for trial in record.trials if trial.batch_size == chosen.batch_size]
        if advice.standing in KEPT:
            assert chosen.batch_size == native
            assert advice.headline.startswith(f"Keep batch size {native}: ")
            return
        assert any(trial.purpose == "confirm" and trial.outcome == "ok" for trial in trials)
        in_doubt = advice.standing == "own" and advice.sureness == "not confirmed"
        assert 12 <= chosen.batch_size <= 256 or (in_doubt and chosen.batch_size == native)
        verb = "Keep" if advice.standing == "own" else "Use"
        assert advice.headline.startswith(f"{verb} batch size {chosen.batch_size}: ")
        assert advice.native.batch_size == native
        assert chosen.samples_per_s.high >= advice.native.samples_per_s.median

    def test_the_last_batch(self, probed, name):
        advice, record = probed(name).advice, probed(name).record
        num_samples, size = SCRIPT[name][1], advice.recommended.batch_size
        assert advice.tail.last_batch == num_samples % size
        assert advice.tail.steps_per_epoch == -(-num_samples // size)
        # Another size's was, or nothing after the confirmation.
        spent = record.stop_reason == BUDGET_SPENT
        assert spent is ("search.cut_short" in {finding.rule for finding in advice.findings})
        untried = advice.tail_check is None and (spent or advice.standing in KEPT)
        if advice.tail.last_batch and not untried:
            assert advice.tail_check.num_samples == num_samples % size
            assert advice.tail_check.outcome == "ok"
            assert advice.tail_check.num_non_finite == 0
        for nearest in advice.tail.nearest_clean:
            assert num_samples % nearest == 0 or num_samples % nearest >= nearest / 2

    def test_the_line_to_change(self, probed, name):
        advice = probed(name).advice
        native, size = SCRIPT[name][0], advice.recommended.batch_size
        if size == native:
            assert advice.change == "nothing to change"
            kept = advice.standing in KEPT
            because = f"the script's own {native}" if kept else "the size the script has already"
            assert because in advice.reason
            return
        file, line, before, after = changed_line(advice.change)
        text = file.read_text().splitlines()[line - 1]
        assert 'add_argument("--batch-size"' in text
        assert before == f"default={native}"
        assert before in text
        assert after == f"default={size}"
        assert f"--batch-size {size}" in advice.change
