"""Streams without a length under frameworks: the longest of their samples come first.

Each framework takes one batch ahead, so that the first step of a trial is made with a batch of the
trial before. What reached the model is read from what the script printed.
"""

import pytest

from ..end_to_end.driver import SCRIPTS, run_preloaded
from ..needs import framework

pytestmark = pytest.mark.frameworks
OPTIONS = ("--json", "-q", "-o", "out", "--no-profile", "--worst-case")
OF_MEMORY = ("--goal", "memory", "--max-batch", "64", "--budget", "3s")
"""Two windows of two steps each, in one process."""
NATIVE, LONGEST = 16, 61


def assert_longest_first(folder, *words, micro_batches=1):
    """Each trial met the longest of its size, in all steps that count; returns the run."""
    script = SCRIPTS / "framework_streams.py"
    done = run_preloaded("run", *OPTIONS, *OF_MEMORY, script, *words, folder=folder)
    assert done.code == 0, done
    assert done.left == []
    discovery = done.record.discovery
    assert (discovery.native_batch_size, discovery.micro_batches) == (NATIVE, micro_batches)
    assert (discovery.primary.iterable, discovery.primary.steered) == (True, "exact")
    assert "worst_case" not in discovery.unavailable
    lines = (line.split() for line in done.log.splitlines() if line.startswith("batch "))
    seen = [(int(num), int(longest)) for _, num, longest in lines]
    trials = done.record.trials
    assert [trial.batch_size for trial in trials[:2]] == [NATIVE, 64]
    for trial in trials:
        size, chosen = trial.batch_size, trial.inputs.chosen
        assert (trial.outcome, trial.arrived_batch_size, trial.size_proof) == ("ok", size, "shape")
        assert (chosen.length, chosen.num_samples, chosen.longest) == ("longest", size, LONGEST)
    # The first step, with a batch of before, is left out; both that count are made with the longest,
    # and the one batch that was taken ahead begins the next trial.
    first = seen.index((64, LONGEST))
    assert seen[:first].count((NATIVE, LONGEST)) == 3 * micro_batches, seen
    assert seen[first:].count((64, LONGEST)) >= 2 * micro_batches, seen
    return done


@pytest.mark.parametrize("how", ["dispatched", "sharded"])
def test_accelerate(tmp_path, how):
    framework("accelerate")
    done = assert_longest_first(tmp_path, "accelerate", how)
    dispatched = done.record.discovery.primary.dispatch_batches
    assert dispatched == (True if how == "dispatched" else None)


def test_trainer(tmp_path):
    """With accumulation, and with workers that have made batches of the size before."""
    framework("transformers")
    framework("accelerate")
    assert_longest_first(tmp_path, "trainer", micro_batches=2)


def test_lightning(tmp_path):
    framework("lightning")
    assert_longest_first(tmp_path, "lightning")
