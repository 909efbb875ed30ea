"""Inputs of varying length: the spread is recorded; on demand the longest samples come first."""

import pytest

from .driver import SCRIPTS, run_well

pytestmark = pytest.mark.slow

OPTIONS = ("-q", "-o", "out", "--no-profile", "--goal", "memory")
LONG = 401
"""Elements of a sample of the longest batches: 400 and its label."""


def test_every_trial_sees_the_longest(tmp_path):
    words = ("--max-batch", "64", "--worst-case", SCRIPTS / "varying_lengths.py")
    done = run_well("run", "--json", *OPTIONS, *words, folder=tmp_path)
    assert done.record.goal.worst_case
    trials = done.searched
    assert trials
    assert {trial.inputs.largest for trial in trials if trial.inputs is not None} == {LONG}
    # Two steps of a fit: both of the longest samples alone, forty of them, repeated.
    assert done.log.splitlines().count("length 400") >= 2 * len(done.record.trials)
    finding = done.finding("inputs.vary")
    assert finding.severity == "info"
    assert "longest samples" in finding.message


@pytest.mark.parametrize(
    ("script", "size", "longest"),
    [("batch_sampler", 50, 60), ("token_budget", 600, 60), ("iterable_texts", 5, 64)],
)
def test_all_kinds_of_loaders(script, size, longest, tmp_path):
    """A batch sampler of the script's own, a budget of tokens, a stream."""
    words = ("--sizes", str(size), "--worst-case", SCRIPTS / f"{script}.py")
    done = run_well("run", *OPTIONS, *words, folder=tmp_path)
    assert "--worst-case had no effect" not in done.stdout
    assert "worst_case" not in done.record.discovery.unavailable
    trial = next(trial for trial in done.record.trials if trial.batch_size == size)
    chosen = trial.inputs.chosen
    assert chosen.length == "longest"
    if script == "token_budget":
        assert size * 0.9 < chosen.num_samples * chosen.longest <= size
        assert "sizes are a budget" in done.record.explained.reason
    else:
        assert (chosen.num_samples, chosen.longest) == (size, longest)


def test_lengths_that_only_the_collate_function_knows_are_said(tmp_path):
    words = ("--sizes", "5", "--worst-case", SCRIPTS / "words_in_collate.py")
    done = run_well("run", *OPTIONS, *words, folder=tmp_path)
    said = " ".join(done.stdout.split())
    why = "a sample has no length before the collate function ran"
    assert said.count(why) == 1
    assert f"--worst-case had no effect: {why}" in said
    assert why in done.record.discovery.unavailable["worst_case"]


def test_inputs_of_one_length_are_not_mentioned(styled):
    result = styled("plain")
    assert {trial.inputs for trial in result.record.trials} == {None}
    assert "inputs.vary" not in result.findings
