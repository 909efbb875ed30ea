"""What is made of the measured reduction of a loss, and where it is asked for."""

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.explain.loss import (
    LEAST,
    MOST,
    evidence_of,
    loss_of,
    matters,
    samples_to_halve,
    step_s_at_most,
)
from batchadvisor.advisor.measured.epoch_end import has_harmful_tail
from batchadvisor.records import Discovery, Distribution, LossCheck, TailCheck

from ..on_paper import discovery_of, loader_of, numbered, record_of, trial_of

MEAN = LossCheck(reduction="mean", num_samples=58, ratio=1.0, apart=0.0, noise=0.0)
SUM = LossCheck(reduction="sum", num_samples=58, ratio=2.0, apart=0.0, noise=0.0)
CONTRASTIVE = LossCheck(reduction="contrastive", num_samples=58, ratio=1.04, apart=0.31, noise=0.0)
UNKNOWN = LossCheck(reason="two gradients of the same batch differ by 80%")
CHECKS = (None, UNKNOWN, MEAN, SUM, CONTRASTIVE)


def record(loss, num_samples=6409, norms=None):
    """Batches of 64: the last one has 9 samples."""
    discovery = discovery_of(64, loader=loader_of(num_samples), norm_layers=norms)
    tail = trial_of(9, purpose="tail", tail=TailCheck(num_samples=9, outcome="ok"))
    return record_of(numbered(trial_of(64, 0.1), tail), discovery=discovery, loss=loss)


def rules(advice):
    return {finding.rule for finding in advice.findings if finding.rule.startswith("tails.")}


@pytest.mark.parametrize("loss", [None, UNKNOWN, MEAN])
def test_a_mean_is_taken_where_nothing_else_was_seen(loss):
    advice = advise(record(loss))
    assert loss_of(record(loss)) == "mean"
    assert rules(advice) == {"tails.loader.short"}
    assert advice.tail.harmful
    assert advice.loss_check == loss


def test_a_sum_weighs_no_sample_more():
    advice = advise(record(SUM))
    assert rules(advice) == set()
    assert not advice.tail.harmful
    assert (advice.tail.last_batch, advice.tail.nearest_clean) == (9, ())
    assert advice.loss_check == SUM


def test_a_contrastive_loss_is_a_case_of_its_own():
    advice = advise(record(CONTRASTIVE))
    assert rules(advice) == {"tails.loss.contrastive"}
    (finding,) = (
        candidate for candidate in advice.findings if candidate.rule == "tails.loss.contrastive"
    )
    assert "each has 8 negatives and not 63" in finding.message
    assert "drop_last=True" in finding.remedy
    assert "tails --explain loss.contrastive" in finding.remedy
    assert ("share of a gradient that halves do not make", 0.31) in [
        (evidence.metric, evidence.value) for evidence in finding.evidence
    ]


def test_the_evidence_of_a_mean():
    (finding,) = (
        candidate
        for candidate in advise(record(MEAN)).findings
        if candidate.rule == "tails.loader.short"
    )
    assert finding.evidence[-1] == evidence_of(MEAN)[0]
    assert finding.evidence[-1].value == 1.0
    assert evidence_of(None) == evidence_of(UNKNOWN) == ()


@pytest.mark.parametrize("goal", ["knee", "throughput", "memory"])
def test_no_size_is_chosen_otherwise(goal):
    """It is measured when the search is over."""
    trials = numbered(*(trial_of(n, 0.01 + n / 1000) for n in (16, 32, 60, 64, 100, 128)))
    sizes = {
        advise(
            record_of(
                trials,
                discovery=discovery_of(64, 6409),
                loss=loss,
                goal=msgspec.convert({"kind": goal}, type(record(None).goal)),
            )
        ).recommended.batch_size
        for loss in CHECKS
    }
    assert len(sizes) == 1


class TestWhereItMatters:
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
    def test_short_batches(self, num_samples, changes, wanted):
        discovery = discovery_of(64, loader=loader_of(num_samples, **changes))
        assert matters(discovery, 64) is wanted
        assert wanted is (has_harmful_tail(discovery, 64) != has_harmful_tail(discovery, 64, "sum"))

    def test_not_told_where_it_does_not(self):
        assert advise(record(MEAN, 6400)).loss_check is None


class TestSamplesToHalve:
    def wanted(self, size=64, **changes):
        values = {"discovery": discovery_of(64, 6409)} | changes
        return samples_to_halve(record_of((), **values), size)

    @pytest.mark.parametrize(
        ("size", "wanted"), [(LEAST, 4), (5, 4), (57, 56), (58, 58), (64, MOST), (4096, MOST)]
    )
    def test_an_even_number_that_is_known_to_run(self, size, wanted):
        assert self.wanted(size) == wanted

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"discovery": discovery_of(door="template")}, "another door (template)"),
            ({"discovery": discovery_of(door="keras")}, "another door (keras)"),
            ({"discovery": discovery_of(num_replicas=2)}, "several ranks"),
            ({"discovery": discovery_of(num_ranks=2)}, "several ranks"),
            ({"distribution": Distribution(world_size=2, launcher="torchrun")}, "several ranks"),
        ],
    )
    def test_refused(self, changes, reason):
        check = self.wanted(**changes)
        assert check.reduction is None
        assert reason in check.reason

    def test_a_batch_that_has_no_halves(self):
        assert self.wanted(3).reason == "a batch of 3 is too small to be halved"

    def test_the_time_of_a_step_of_that_size(self):
        trials = numbered(*(trial_of(n, n / 100) for n in (16, 64, 128)))
        advice = advise(record_of(trials, discovery=discovery_of(64, 6409)))
        assert [step_s_at_most(advice, n) for n in (10, 58, 128)] == pytest.approx(
            [0.16, 0.64, 1.28]
        )
        assert step_s_at_most(advise(record_of(numbered(trial_of(64)))), 58) == 0

    def test_several_loaders(self):
        both: Discovery = msgspec.structs.replace(
            discovery_of(64, 6409), loaders=(loader_of(6409), loader_of(50, ordinal=1))
        )
        assert self.wanted(discovery=both).reason == "several loaders feed a step"
