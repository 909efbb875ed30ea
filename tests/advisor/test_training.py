"""What another size does to the training."""

import pytest
from batchadvisor.advisor.measured.training import (
    LINEAR_RULE,
    SQUARE_ROOT_RULE,
    UNKNOWN_RULE,
    training_of,
)
from batchadvisor.records import OptimizerInfo

from ..on_paper import discovery_of, loader_of


def optimizer(name, rate=0.1, *, trains=True, ordinal=0):
    return OptimizerInfo(
        ordinal=ordinal, place=None, name=name, learning_rate=rate, num_parameters=1, trains=trains
    )


def training(size, *, keep=False, optimizers=None, **changes):
    used = (optimizer("SGD"),) if optimizers is None else tuple(optimizers)
    return training_of(discovery_of(optimizers=used, **changes), size, keep=keep)


class TestRate:
    @pytest.mark.parametrize(
        ("name", "rate", "rule"),
        [
            ("SGD", 0.4, LINEAR_RULE),
            ("AdamW", 0.2, SQUARE_ROOT_RULE),
            ("RMSprop", 0.2, SQUARE_ROOT_RULE),
            ("LBFGS", None, UNKNOWN_RULE),
            ("MyOptimizer", None, UNKNOWN_RULE),
        ],
    )
    def test_rules(self, name, rate, rule):
        (learning_rate,) = training(32, optimizers=[optimizer(name)]).learning_rates
        assert learning_rate.suggested == (rate and pytest.approx(rate))
        assert (learning_rate.rule, learning_rate.rule_source) == rule
        assert (learning_rate.optimizer, learning_rate.before) == (name, 0.1)

    def test_smaller_sizes_scale_down(self):
        assert training(2).learning_rates[0].suggested == pytest.approx(0.025)

    def test_the_same_effective_batch_keeps_it(self):
        (learning_rate,) = training(8).learning_rates
        assert (learning_rate.suggested, learning_rate.rule_source) == (0.1, "")
        assert "stays" in learning_rate.rule

    def test_the_optimizers_that_step_count(self):
        """Each kind and rate once, each by its own rule."""
        idle, steps = optimizer("SGD", 0.3, trains=False), optimizer("Adam", 0.5, ordinal=1)
        others = [optimizer("SGD", ordinal=2), optimizer("Adam", 0.5, ordinal=3)]
        learning_rates = training(32, optimizers=[idle, steps, *others]).learning_rates
        assert [
            (learning_rate.optimizer, learning_rate.before, learning_rate.suggested)
            for learning_rate in learning_rates
        ] == [
            ("Adam", 0.5, 1.0),
            ("SGD", 0.1, pytest.approx(0.4)),
        ]

    def test_no_optimizer_and_no_rate(self):
        assert training(32, optimizers=[]).learning_rates == ()
        (learning_rate,) = training(32, optimizers=[optimizer("SGD", None)]).learning_rates
        assert (learning_rate.before, learning_rate.suggested) == (None, None)


class TestCounts:
    def test_steps_and_effective_batch(self):
        outcome = training(32, num_samples=1000)
        assert (outcome.effective_before, outcome.effective_after) == (8, 32)
        assert (outcome.steps_before, outcome.steps_after) == (125, 32)
        assert outcome.micro_batches == 1

    def test_drop_last(self):
        outcome = training(32, loader=loader_of(1000, drop_last=True))
        assert (outcome.steps_before, outcome.steps_after) == (125, 31)

    def test_ranks_share_an_epoch(self):
        """Each rank makes the steps of its own part, whatever the loader's length speaks of."""
        sampled = loader_of(250, sampler="DistributedSampler", dataset_samples=1000)
        sharded = loader_of(
            1000, sampler="BatchSamplerShard", dataset_samples=1000, even_batches=True
        )
        for loader in (sampled, sharded):
            outcome = training(20, loader=loader, num_ranks=4)
            assert (outcome.steps_before, outcome.steps_after) == (32, 13)

    def test_several_steps_on_a_batch(self):
        """The batch is what each of them may see a part of; the steps are counted."""
        outcome = training(32, num_samples=1000, steps_per_batch=4)
        assert (outcome.effective_before, outcome.effective_after) == (8, 32)
        assert (outcome.steps_before, outcome.steps_after) == (500, 128)
        assert outcome.steps_per_batch == 4

    def test_a_pool_is_no_accumulation(self):
        outcome = training(32, num_samples=1000, pool=8)
        assert (outcome.effective_after, outcome.steps_after, outcome.micro_batches) == (32, 32, 1)

    def test_unknown_length(self):
        outcome = training(32, loader=loader_of(None))
        assert (outcome.steps_before, outcome.steps_after) == (None, None)

    def test_accumulation_stays_unless_asked(self):
        outcome = training(16, micro_batches=4)
        assert (outcome.micro_batches, outcome.effective_before, outcome.effective_after) == (
            4,
            32,
            64,
        )
        assert outcome.keep_accumulation == 2

    def test_kept_effective_batch(self):
        outcome = training(16, micro_batches=4, keep=True)
        assert (outcome.micro_batches, outcome.effective_after) == (2, 32)
        assert outcome.learning_rates[0].suggested == 0.1

    def test_no_accumulation_gives_the_old_batch(self):
        outcome = training(12, micro_batches=4)
        assert outcome.keep_accumulation is None
        assert training(12, micro_batches=4, keep=True).micro_batches == 4
        assert training(64, micro_batches=4).keep_accumulation is None
