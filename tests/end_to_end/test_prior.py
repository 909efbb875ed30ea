"""Steps on fake tensors before a search for memory, in the real command."""

import pytest
from batchadvisor.session.recording.store import read_record

from .driver import ON_CPU, SCRIPTS, run_well

pytestmark = pytest.mark.slow
OPTIONS = (
    *("--no-profile", "-o", "out", "--goal", "memory", "--max-batch", "64", "--budget", "400s"),
    *ON_CPU,
)


def test_the_search_begins_with_what_they_predict(tmp_path):
    script = str(SCRIPTS / "tiny_gpt.py")
    result = run_well("run", "-v", *OPTIONS, script, folder=tmp_path)
    prior, trials = result.record.prior, result.record.trials
    assert prior.reason == ""
    assert min(prior.peaks) == 2
    assert 16 in prior.peaks
    assert prior.floor_bytes > 4 * 3 * result.record.discovery.num_parameters
    # They were made in a process of their own, which ended before the first real step.
    assert {trial.worker for trial in result.searched} == {1}
    assert all(trial.predicted_bytes for trial in result.searched)
    assert trials[-1].batch_size == 64
    assert "predicted memory" in result.stdout
    assert "by steps that computed nothing" in " ".join(result.stdout.split())
    assert "a step on fake tensors at batch 2" in result.stderr
    # Resumed, nothing of it is made again.
    asked = ("--goal", "memory", "--max-batch", "64")
    again = run_well("run", "--resume", "out", *asked, script, folder=tmp_path)
    assert "fake tensors" not in again.stderr
    assert read_record(result.run_folder).prior == prior


def test_a_script_that_cannot_be_traced_is_searched_as_before(tmp_path):
    script = tmp_path / "picks.py"
    text = (SCRIPTS / "tiny_gpt.py").read_text()
    script.write_text(text.replace("loss.backward()", "logits[logits > 0].mean().backward()"))
    result = run_well("run", "-v", *OPTIONS, "picks.py", folder=tmp_path)
    assert "a shape depends on values" in result.record.prior.reason
    assert result.record.prior.peaks == {}
    assert all(trial.predicted_bytes is None for trial in result.record.trials)
    assert result.record.trials[-1].batch_size == 64
    assert "memory is not predicted: a shape depends on values" in result.stderr
    assert "the search went by measured peaks alone" in " ".join(result.stdout.split())
