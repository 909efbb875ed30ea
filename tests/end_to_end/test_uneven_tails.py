"""The end of an epoch in whole runs: a step of its length is executed, and what it did is said."""

import pytest

from .driver import SCRIPTS, run_well

pytestmark = pytest.mark.slow
OPTIONS = ("--json", "-q", "-o", "out", "--no-profile", "--goal", "memory", "--sizes", "8")


@pytest.fixture
def ended(tmp_path):
    """A finished run of the script in one of its kinds."""

    def _ended(kind, *options):
        script = SCRIPTS / "uneven_tail.py"
        done = run_well("run", *OPTIONS, *options, script, kind, folder=tmp_path)
        assert done.advice.recommended.batch_size == 8
        return done

    return _ended


def test_one_sample_fills_its_maps(ended):
    """BatchNorm over 36 values of one sample: seen before, then executed; no error is predicted."""
    done = ended("maps")
    norms = done.record.discovery.norm_layers
    assert (norms.batch_norm, norms.batch_norm_values) == (1, 36)
    assert "norm_values" not in done.record.discovery.unavailable
    check = done.advice.tail_check
    assert (check.num_samples, check.outcome, check.num_norms) == (1, "ok", 1)
    by_rule = done.findings
    assert not {"tail.crash", "tail.nan", "tails.norm.one-value"} & set(by_rule)
    message = by_rule["tails.norm.few-samples"].message
    assert "1 sample pulls BatchNorm's running statistics" in message
    assert "moved a running variance from" in message


def test_one_value_per_channel(ended):
    """BatchNorm over one sample raises: found by doing it."""
    done = ended("flat")
    norms = done.record.discovery.norm_layers
    assert (norms.batch_norm, norms.batch_norm_values) == (2, 1)
    (tail,) = (trial for trial in done.record.trials if trial.purpose == "tail")
    assert tail.batch_size == tail.tail.num_samples == 1
    assert tail.outcome == tail.tail.outcome == done.advice.tail_check.outcome == "exception"
    assert "more than 1 value per channel" in tail.detail
    crash = done.findings["tail.crash"]
    assert crash.severity == "error"
    assert "more than 1 value per channel" in crash.message
    assert "drop_last=True" in crash.remedy


def test_changed_running_statistics(ended):
    done = ended("few")
    check = done.advice.tail_check
    assert (check.num_samples, check.outcome) == (3, "ok")
    assert check.running_var_before != check.running_var_after
    assert (
        f"moved a running variance from {check.running_var_before:.4g} to "
        f"{check.running_var_after:.4g}" in done.findings["tails.norm.few-samples"].message
    )


def test_a_tail_that_makes_weights_nan(ended):
    done = ended("nan")
    check = done.advice.tail_check
    assert (check.num_samples, check.outcome) == (1, "ok")
    assert check.num_non_finite == 4  # weights and biases of both layers
    finding = done.findings["tail.nan"]
    assert finding.severity == "error"
    assert "4 parameter tensors were not finite" in finding.message
    assert "drop_last=True" in finding.remedy


def test_a_dataset_without_a_length(ended):
    """Unknown is named as unknown, with what to type; a single sample is executed nevertheless."""
    done = ended("stream")
    assert done.advice.tail is None
    reason = done.advice.unavailable["tail"]
    assert "has no length" in reason
    plan = "batchadvisor tails --samples N --batch-size 8 --iterable --batch-norm-values 36"
    assert plan in reason
    assert done.advice.tail_check.num_samples == 1
    told = run_well(*plan.replace("N", "41", 1).split()[1:], "--json", folder=done.folder)
    assert told.answer["layout"]["last"] == [1]
