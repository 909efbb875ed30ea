"""When padding is worth a word, and when it is not."""

import pytest
from batchadvisor.advisor.explain.token_findings import HIGH_PADDING, padding
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.records import Tokens

from ..on_paper import discovery_of, numbered, record_of, trial_of


def findings(*trials, size=64):
    record = record_of(numbered(*trials), discovery=discovery_of(native=64))
    return padding(Measurements.of(record), size)


def trial(share, size=64, evidence="attention mask", num_batches=20, **changes):
    tokens = Tokens(
        num_batches=num_batches, evidence=evidence, positions_per_step=100.0, padding_share=share
    )
    return trial_of(size, 0.1, tokens=tokens, **changes)


@pytest.mark.parametrize("evidence", ["attention mask", "lengths", "padding mask"])
def test_a_large_share(evidence):
    (finding,) = findings(trial(0.5, evidence=evidence))
    assert finding.rule == "tokens.padding"
    assert "50% of the positions at batch 64 are padding" in finding.message
    assert evidence in finding.message
    assert "2 positions" in finding.message
    assert finding.remedy == ""  # nothing was tried, and nothing predicted
    assert finding.evidence[0].value == 0.5


@pytest.mark.parametrize(
    "trials",
    [
        [trial_of(64, 0.1)],
        [trial(HIGH_PADDING - 0.01)],
        [trial(0.0)],
        [trial(None)],
        [trial(1.0)],  # every batch was empty
        [trial(0.5, evidence="run of one id")],
        [trial(0.5, size=8), trial(0.1)],
    ],
)
def test_nothing_to_say(trials):
    assert findings(*trials) == []


def test_the_trial_that_counted_most_speaks():
    (finding,) = findings(trial(0.3, num_batches=5), trial(0.4, num_batches=90))
    assert "40%" in finding.message


def test_an_undisturbed_trial_comes_first():
    (finding,) = findings(trial(0.3, num_batches=5), trial(0.4, num_batches=90, doubts=("noise",)))
    assert "30%" in finding.message
