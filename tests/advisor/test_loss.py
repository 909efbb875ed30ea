"""Where the answer asks how the loss reduces a batch, and what older records know of it."""

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.measured.epoch_end import has_harmful_tail
from batchadvisor.records import LossCheck, RunRecord, TailCheck
from batchadvisor.reports.builder.sections.tail import tail_texts

from ..on_paper import discovery_of, loader_of, numbered, record_of, trial_of

ASKED = "batchadvisor tails --samples 6409 --batch-size 64 --loss sum"
UNKNOWN = LossCheck()


def record(loss=None, num_samples=6409, **changes):
    """Batches of 64: the last one has 9 samples."""
    discovery = discovery_of(64, loader=loader_of(num_samples, **changes))
    tail = trial_of(9, purpose="tail", tail=TailCheck(num_samples=9, outcome="ok"))
    return record_of(numbered(trial_of(64, 0.1), tail), discovery=discovery, loss=loss)


def measured(reduction):
    """As a version that measured it wrote it."""
    check = {"reduction": reduction, "num_samples": 58, "ratio": 2.0, "apart": 0.3, "noise": 0.0}
    raw = msgspec.to_builtins(record()) | {"loss": check}
    return msgspec.json.decode(msgspec.json.encode(raw), type=RunRecord)


def rules(advice):
    return {finding.rule for finding in advice.findings if finding.rule.startswith("tails.")}


@pytest.mark.parametrize("loss", [None, UNKNOWN])
def test_a_mean_is_taken_and_the_question_named(loss):
    advice = advise(record(loss))
    assert rules(advice) == {"tails.loader.short"}
    assert advice.tail.harmful
    assert advice.loss_question == ASKED
    assert any(text.endswith(f"ask: {ASKED}") for text, _ in tail_texts(advice))


@pytest.mark.parametrize(
    ("reduction", "said"),
    [
        ("mean", {"tails.loader.short"}),
        ("sum", set()),
        ("contrastive", {"tails.loss.contrastive"}),
    ],
)
def test_what_an_older_version_measured_is_not_asked(reduction, said):
    advice = advise(measured(reduction))
    assert rules(advice) == said
    assert advice.tail.harmful is bool(said)
    assert advice.loss_question == ""


@pytest.mark.parametrize(
    ("num_samples", "changes", "wanted"),
    [
        (6409, {}, True),
        (6400, {}, False),  # no short batch
        (6440, {}, False),  # 40 of 64 do no harm
        (6409, {"drop_last": True}, False),
        (60, {}, False),  # one batch is all
        (None, {}, False),
        (6409, {"iterable": True, "num_workers": 2}, False),
    ],
)
def test_asked_only_where_the_answer_hangs_on_it(num_samples, changes, wanted):
    assert bool(advise(record(None, num_samples, **changes)).loss_question) is wanted
    discovery = discovery_of(64, loader=loader_of(num_samples, **changes))
    assert wanted is (has_harmful_tail(discovery, 64) != has_harmful_tail(discovery, 64, "sum"))
