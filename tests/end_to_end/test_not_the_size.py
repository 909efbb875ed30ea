"""Refusals in other words than an exception's, and what only looks like one: a user's view."""

import pytest

from .driver import SCRIPTS, run_preloaded

pytestmark = pytest.mark.slow

OPTIONS = ("--json", "-q", "-o", "out", "--no-profile", "--goal", "memory", "--budget", "40s")
SCRIPT = SCRIPTS / "refusals.py"


def end(how, folder, *arguments, options=("--max-batch", "64")):
    return run_preloaded("run", *OPTIONS, *options, SCRIPT, "--how", how, *arguments, folder=folder)


def outcomes(done):
    return {trial.batch_size: trial.outcome for trial in done.record.trials}


@pytest.mark.parametrize("how", ["prints", "gives up"])
def test_a_process_that_leaves_without_an_exception(how, tmp_path):
    done = end(how, tmp_path, "--above", "40")
    assert done.code == 0, done
    assert set(outcomes(done).values()) == {"ok", "out_of_memory"}
    assert 8 <= done.advice.recommended.batch_size <= 40
    said = [trial.detail for trial in done.record.trials if not trial.ran]
    assert any("out of memory" in detail or "allocate" in detail for detail in said)


def test_a_kernel_that_takes_no_more(tmp_path):
    done = end("kernel", tmp_path)
    assert done.code == 0, done
    assert done.advice.recommended.batch_size == 31  # one sample less than 2**31 elements
    assert [trial.outcome for trial in done.record.trials if not trial.ran] == ["exception"]
    finding = done.finding("trial.exception")
    assert "memory is not the limit" in finding.message
    assert "65536 has" in finding.message
    assert "Take 31 or less" in finding.remedy


def test_an_evaluation_that_runs_out(tmp_path):
    done = end("evaluation", tmp_path)
    refused = [trial for trial in done.record.trials if not trial.ran]
    assert len(refused) == 1
    assert min(trial.batch_size for trial in done.record.trials) == 8
    line = 1 + SCRIPT.read_text().splitlines().index(
        "validation = DataLoader(TensorDataset(data[:640]), batch_size=64)"
    )
    assert refused[0].aside.startswith("a batch of 64 of the loader made at ")
    assert refused[0].aside.endswith(f"refusals.py:{line}")
    assert "torch.no_grad()" in str(done)
