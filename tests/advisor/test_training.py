"""What another size does to the training."""

import pytest
from batchadvisor.advisor.measured.training import (
    KEPT_RULE,
    LINEAR_RULE,
    SQUARE_ROOT_RULE,
    TOO_FAR,
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

    @pytest.mark.parametrize(
        ("size", "rate", "rule"),
        [
            (2, 0.025, LINEAR_RULE),
            (8, 0.1, KEPT_RULE),
            (257, None, TOO_FAR),
            (256, 3.2, LINEAR_RULE),
        ],
    )
    def test_it_goes_with_the_effective_batch(self, size, rate, rule):
        (learning_rate,) = training(size).learning_rates
        assert learning_rate.suggested == (rate and pytest.approx(rate))
        assert learning_rate.rule_source == rule[1]

    def test_the_optimizers_that_step_count(self):
        """Each kind and rate once, each by its own rule."""
        idle, steps = optimizer("SGD", 0.3, trains=False), optimizer("Adam", 0.5, ordinal=1)
        others = [optimizer("SGD", ordinal=2), optimizer("Adam", 0.5, ordinal=3)]
        learning_rates = training(32, optimizers=[idle, steps, *others]).learning_rates
        assert [(each.optimizer, each.suggested) for each in learning_rates] == [
            ("Adam", 1.0),
            ("SGD", pytest.approx(0.4)),
        ]

    def test_no_optimizer_and_no_rate(self):
        assert training(32, optimizers=[]).learning_rates == ()
        (learning_rate,) = training(32, optimizers=[optimizer("SGD", None)]).learning_rates
        assert (learning_rate.before, learning_rate.suggested) == (None, None)


class TestCounts:
    @pytest.mark.parametrize(
        ("loader", "changes", "steps"),
        [
            (loader_of(1000), {}, (125, 32)),
            (loader_of(1000, drop_last=True), {}, (125, 31)),
            # The batch is what each of them may see a part of; the steps are counted.
            (loader_of(1000), {"steps_per_batch": 4}, (500, 128)),
            (loader_of(1000), {"pool": 8}, (125, 32)),  # a pool is no accumulation
            (loader_of(None), {}, (None, None)),
        ],
        ids=["plain", "drop_last", "several steps on a batch", "pool", "no length"],
    )
    def test_steps_and_effective_batch(self, loader, changes, steps):
        outcome = training(32, loader=loader, **changes)
        assert (outcome.effective_before, outcome.effective_after) == (8, 32)
        assert (outcome.steps_before, outcome.steps_after) == steps
        assert outcome.micro_batches == 1

    def test_ranks_share_an_epoch(self):
        """Each rank makes the steps of its own part, whatever the loader's length speaks of."""
        sampled = loader_of(250, sampler="DistributedSampler", dataset_samples=1000)
        sharded = loader_of(
            1000, sampler="BatchSamplerShard", dataset_samples=1000, even_batches=True
        )
        for loader in (sampled, sharded):
            outcome = training(20, loader=loader, num_ranks=4)
            assert (outcome.steps_before, outcome.steps_after) == (32, 13)

    @pytest.mark.parametrize(
        ("size", "keep", "micro", "kept"),
        [
            (16, False, 4, 2),  # accumulation stays unless asked
            (16, True, 2, 2),
            (12, True, 4, None),  # none gives the old batch
            (64, False, 4, None),
        ],
    )
    def test_accumulation(self, size, keep, micro, kept):
        outcome = training(size, micro_batches=4, keep=keep)
        assert outcome.effective_before == 32
        assert (outcome.micro_batches, outcome.effective_after) == (micro, size * micro)
        assert outcome.keep_accumulation == kept
