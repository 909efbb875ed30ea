"""Inputs of varying length: the spread is recorded; on demand the longest samples come first."""

import pytest

from .driver import SCRIPTS
from .driver import run_preloaded as run

pytestmark = pytest.mark.slow

OPTIONS = ("--json", "-q", "-o", "out", "--no-profile", "--goal", "memory", "--max-batch", "64")
LONG = 401
"""Elements of a sample of the longest batches: 400 and its label."""


def run_of(folder, *options):
    return run("run", *OPTIONS, *options, SCRIPTS / "varying_lengths.py", folder=folder)


def lengths(done):
    """Those that reached the model, trial by trial: a size not asked for begins none."""
    return [int(line.split()[1]) for line in done.log.splitlines() if line.startswith("length ")]


@pytest.fixture(scope="module")
def worst(tmp_path_factory):
    return run_of(tmp_path_factory.mktemp("worst"), "--worst-case")


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    return run_of(tmp_path_factory.mktemp("usual"))


def test_every_trial_sees_the_longest(worst):
    assert worst.code == 0, worst
    assert worst.left == []
    assert worst.record.goal.worst_case
    trials = [trial for trial in worst.record.trials if trial.purpose == "search"]
    assert trials
    assert {trial.inputs.largest for trial in trials if trial.inputs is not None} == {LONG}
    # Two steps of a fit: both of the longest samples alone, forty of them, repeated.
    assert lengths(worst).count(400) >= 2 * len(worst.record.trials)


def test_it_is_said(worst):
    (spread_finding,) = (
        finding for finding in worst.advice.findings if finding.rule == "inputs.vary"
    )
    assert "longest samples" in spread_finding.message
    assert spread_finding.severity == "info"


@pytest.mark.parametrize(
    ("script", "size", "longest"),
    [("batch_sampler", 50, 60), ("token_budget", 600, 60), ("iterable_texts", 5, 64)],
)
def test_all_kinds_of_loaders(script, size, longest, tmp_path):
    """A batch sampler of the script's own, a budget of tokens, a stream."""
    options = ("-q", "-o", "out", "--no-profile", "--goal", "memory", "--sizes", str(size))
    done = run("run", *options, "--worst-case", SCRIPTS / f"{script}.py", folder=tmp_path)
    assert done.code == 0, done
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
    options = ("-q", "-o", "out", "--no-profile", "--goal", "memory", "--sizes", "5")
    script = SCRIPTS / "words_in_collate.py"
    done = run("run", *options, "--worst-case", script, folder=tmp_path)
    assert done.code == 0, done
    said = " ".join(done.stdout.split())
    why = "a sample has no length before the collate function ran"
    assert said.count(why) == 1
    assert f"--worst-case had no effect: {why}" in said
    assert why in done.record.discovery.unavailable["worst_case"]


def test_without_it_the_spread_is_a_warning(usual):
    assert usual.code == 0, usual
    assert usual.left == []
    seen = [trial.inputs for trial in usual.record.trials if trial.inputs is not None]
    assert seen
    assert min(inputs.smallest for inputs in seen) < 30
    (spread_finding,) = (
        finding for finding in usual.advice.findings if finding.rule == "inputs.vary"
    )
    assert spread_finding.severity == "warning"
    assert "--worst-case" in spread_finding.remedy


def test_inputs_of_one_length_are_not_mentioned(styled):
    record = styled("plain").record
    assert {trial.inputs for trial in record.trials} == {None}
    assert not [
        finding for finding in styled("plain").advice.findings if finding.rule == "inputs.vary"
    ]
