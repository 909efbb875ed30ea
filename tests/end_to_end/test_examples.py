"""The two examples, as a user runs them: the answer is sound."""

import pytest

from .driver import EXAMPLES, changed_line, run

BUDGET = "30s"
SCRIPT = {"char_gpt": (8, 15625), "resnet18_cifar10": (16, 10000)}


@pytest.fixture(scope="module")
def probed(tmp_path_factory):
    done = {}

    def get(name):
        if name not in done:
            folder = tmp_path_factory.mktemp(name)
            options = ("--json", "-q", "-o", "out", "--no-profile", "--budget", BUDGET)
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
        trials = [one for one in record.trials if one.batch_size == chosen.batch_size]
        if advice.standing in ("too noisy", "worse"):  # a busy machine: then nothing is changed
            assert chosen.batch_size == native
            assert advice.headline.startswith(f"Keep batch size {native}: ")
            return
        assert any(one.purpose == "confirm" and one.outcome == "ok" for one in trials)
        assert 12 <= chosen.batch_size <= 256
        assert advice.headline.startswith(f"Use batch size {chosen.batch_size}: ")
        assert advice.native.batch_size == native
        assert chosen.samples_per_s.high >= advice.native.samples_per_s.median

    def test_the_last_batch(self, probed, name):
        advice = probed(name).advice
        num_samples, size = SCRIPT[name][1], advice.recommended.batch_size
        assert advice.tail.last_batch == num_samples % size
        assert advice.tail.steps_per_epoch == -(-num_samples // size)
        if advice.tail.last_batch:
            assert advice.tail_check.num_samples == num_samples % size
            assert advice.tail_check.outcome == "ok"
            assert advice.tail_check.num_non_finite == 0
        for one in advice.tail.nearest_clean:
            assert num_samples % one == 0 or num_samples % one >= one / 2

    def test_the_line_to_change(self, probed, name):
        advice = probed(name).advice
        native, size = SCRIPT[name][0], advice.recommended.batch_size
        if size == native:
            assert advice.change == "nothing to change"
            assert "the size the script has already" in advice.reason
            return
        file, line, before, after = changed_line(advice.change)
        text = file.read_text().splitlines()[line - 1]
        assert 'add_argument("--batch-size"' in text
        assert before == f"default={native}"
        assert before in text
        assert after == f"default={size}"
        assert f"--batch-size {size}" in advice.change
