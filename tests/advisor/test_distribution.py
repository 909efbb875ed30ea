"""The epoch law, its intervals and its verdicts, on times that are known."""

import random

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.explain.distribution_findings import distribution_findings
from batchadvisor.advisor.measured.distribution import (
    WORLD_SIZES,
    epoch_samples,
    law,
    scaling_of,
    sizes_to_pair,
    verdict_of,
)
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.records import Communication, Distribution, Parallelism, RankPairs, Spread

from ..on_paper import discovery_of, loader_of, record_of


def spread(median, half=0.0):
    return Spread(
        median=median, low=median - half, high=median + half, num_samples=20, confidence=0.9
    )


def discovery(sampler="DistributedSampler", num_samples=10_000):
    return discovery_of(64, loader=loader_of(num_samples, batch_size=64, sampler=sampler))


def pairs(rank, compute_s, sync_s, *, seed=0, noise=0.01, exposed_s=None, alone_s=None, num=20):
    rng = random.Random(seed)
    ours = [compute_s * (1 + noise * rng.uniform(-1, 1)) for _ in range(num)]
    return RankPairs(
        rank=rank,
        compute_s=tuple(ours),
        step_s=tuple(own_s + sync_s * (1 + noise * rng.uniform(-1, 1)) for own_s in ours),
        exposed_s=() if exposed_s is None else (exposed_s,) * num,
        alone_s=() if alone_s is None else (alone_s,) * num,
    )


def record(*communication, world_size=2, **changes):
    distribution = Distribution(
        world_size=world_size,
        launcher="torchrun",
        parallelism=Parallelism(shapes=("DistributedDataParallel",), world_size=world_size),
        communication=communication,
    )
    return record_of(**{"discovery": discovery(), "distribution": distribution, **changes})


def test_a_data_set_of_nothing_has_no_epoch():
    found = scaling_of(record(at(64, 0.1, 0.02), discovery=discovery(num_samples=0)))
    assert found.unavailable["epoch_s"] == "the dataset is empty"


def at(size, compute_s, sync_s, **named):
    ranks = (pairs(0, compute_s, sync_s, seed=size, **named),)
    ranks += (pairs(1, compute_s, sync_s, seed=size + 1, **named),)
    return Communication(batch_size=size, micro_batches=1, ranks=ranks)


def of_ranks(*ranks):
    return Communication(batch_size=9, micro_batches=1, ranks=ranks)


class TestVerdict:
    @pytest.mark.parametrize(
        ("sync", "compute", "world_size", "expected"),
        [
            (spread(0.010, 0.001), spread(0.020, 0.001), 2, "pays"),
            (spread(0.030, 0.001), spread(0.020, 0.001), 2, "does not pay"),
            (spread(0.030, 0.001), spread(0.020, 0.001), 4, "pays"),
            (spread(0.020, 0.004), spread(0.020, 0.001), 2, "cannot tell"),
            (spread(0.018, 0.004), spread(0.020, 0.0), 2, "cannot tell"),
        ],
    )
    def test_it_pays_if_and_only_if_the_intervals_say_so(self, sync, compute, world_size, expected):
        verdict, message = verdict_of(sync, compute, world_size)
        assert verdict == expected
        assert "ms" in message


def test_synchronisation_grows_with_the_devices_and_stays_below_twice_that_of_two():
    steps = [law(spread(0.02), spread(0.01), 2, size)[0] for size in WORLD_SIZES]
    assert steps == sorted(steps)
    assert steps[-1] < 0.02 + 2 * 0.01
    assert law(spread(0.02), spread(-0.001), 2, 8)[0] == pytest.approx(0.02), "none is a gain"


class TestScaling:
    def test_epochs_follow_the_law_of_the_articles(self):
        scaling = scaling_of(record(at(100, 0.020, 0.010)), 100)
        points = {row.world_size: row for row in scaling.points}
        assert tuple(points) == WORLD_SIZES
        samples = 20_000  # two ranks draw 10 000 each
        assert points[1].epoch_s.median == pytest.approx(samples / 100 * 0.020, rel=0.02)
        assert points[2].epoch_s.median == pytest.approx(samples / 200 * 0.030, rel=0.02)
        assert points[2].speedup.median == pytest.approx(2 * 0.020 / 0.030, rel=0.02)
        assert [row.world_size for row in scaling.points if row.confidence == "measured"] == [2]
        for point in scaling.points:
            assert point.epoch_s.low <= point.epoch_s.median <= point.epoch_s.high

    def test_the_speed_up_is_that_of_the_epochs(self):
        """Also where more ranks than batches share the data: a step cannot be halved."""
        points = scaling_of(record(at(4000, 0.020, 0.010)), 4000).points
        alone_s = points[0].epoch_s.median
        assert [point.speedup.median for point in points] == pytest.approx(
            [alone_s / point.epoch_s.median for point in points], rel=0.02
        )
        assert points[-1].speedup.median < points[-1].world_size / 10

    def test_a_row_does_not_contradict_itself(self):
        """The median of differences is not the difference of medians on a noisy machine."""
        compute = (0.020, 0.020, 0.020, 0.020, 0.020, 0.044, 0.044, 0.044, 0.044)
        step = (0.024, 0.024, 0.024, 0.024, 0.046, 0.046, 0.046, 0.046, 0.046)
        ranks = tuple(RankPairs(rank=rank, compute_s=compute, step_s=step) for rank in range(2))
        run = record(Communication(batch_size=100, micro_batches=1, ranks=ranks))
        points = {point.world_size: point for point in scaling_of(run, 100).points}
        ratio = points[1].epoch_s.median / points[2].epoch_s.median
        assert points[2].speedup.median == pytest.approx(ratio)

    def test_an_accumulated_step_holds_more_samples(self):
        accumulated = msgspec.structs.replace(at(100, 0.020, 0.010), micro_batches=4)
        scaling = scaling_of(record(accumulated), 100)
        assert scaling.points[0].epoch_s.median == pytest.approx(20_000 / 400 * 0.020, rel=0.02)

    def test_break_even_is_where_the_law_says(self):
        # Tcomp = 2 ms + 0.1 ms B; Tsync 22 ms: two ranks pay from B = 200 on.
        run = record(at(50, 0.007, 0.022), at(400, 0.042, 0.022))
        scaling = scaling_of(run, 50)
        assert scaling.verdict == "does not pay"
        assert scaling.break_even_batch == pytest.approx(200, abs=10)
        assert scaling.break_even_low <= scaling.break_even_batch <= scaling.break_even_high
        assert scaling_of(run, 400).verdict == "pays"

    def test_budgets_of_tokens_are_no_samples(self):
        loader = loader_of(10_000, batch_size=50, axis="tokens", parameter="max_tokens")
        run = record(
            at(50, 0.007, 0.022), at(400, 0.042, 0.022), discovery=discovery_of(50, loader=loader)
        )
        scaling = scaling_of(run, 50)
        found = distribution_findings(Measurements.of(run), 50, scaling)
        (cost,) = (one for one in found if one.rule == "distribution.cost")
        assert cost.message.endswith("does not pay at max_tokens=50")
        assert f"from about {scaling.break_even_batch} tokens a rank on" in cost.remedy

    def test_the_evidence_is_what_the_verdict_compares(self):
        """Ranks that share a host cost each other more than Tsync, by which they would pay."""
        run = record(at(50, 0.012, 0.005, alone_s=0.006))
        scaling = scaling_of(run, 50)
        assert scaling.verdict == "does not pay"
        assert scaling.sync_s.median < scaling.compute_s.median
        assert "Tsync" not in scaling.message  # that is another number
        (cost,) = (
            one
            for one in distribution_findings(Measurements.of(run), 50, scaling)
            if one.rule == "distribution.cost"
        )
        (evidence,) = cost.evidence
        assert evidence.value == pytest.approx(0.011, rel=0.05)
        assert evidence.threshold == pytest.approx(0.006)

    def test_no_break_even_from_one_size_or_from_times_that_do_not_grow(self):
        scaling = scaling_of(record(at(50, 0.02, 0.01)), 50)
        assert scaling.break_even_batch is None
        assert "one size" in scaling.unavailable["break_even_batch"]
        flat = scaling_of(record(at(50, 0.02, 0.01), at(400, 0.019, 0.01)), 50)
        assert flat.break_even_batch is None
        assert "does not grow" in flat.unavailable["break_even_batch"]

    def test_the_transfer_is_the_least_over_the_ranks(self):
        ranks = (pairs(0, 0.02, 0.06, exposed_s=0.060), pairs(1, 0.07, 0.01, exposed_s=0.010))
        assert scaling_of(record(of_ranks(*ranks)), 9).wire_s.median == pytest.approx(0.010)

    def test_a_straggler_is_named_and_the_waits_are_split(self):
        ranks = (pairs(0, 0.02, 0.06), pairs(1, 0.07, 0.01, seed=1))
        scaling = scaling_of(record(of_ranks(*ranks)), 9)
        assert scaling.straggler == 1
        assert scaling.waits_s[0] == pytest.approx(0.05, rel=0.05)
        assert scaling.waits_s[1] == 0
        # Tcomp is that of the slowest rank: the job computes no faster.
        assert scaling.compute_s.median == pytest.approx(0.07, rel=0.02)
        assert scaling.sync_s.median == pytest.approx(0.01, rel=0.2)

        assert scaling_of(record(at(9, 0.02, 0.01)), 9).straggler is None, "they are equal"

    @pytest.mark.parametrize(
        "run",
        [
            record(of_ranks(pairs(0, 0.02, 0.06))),  # a rank is missing
            record(of_ranks(pairs(0, 0.02, 0.01), RankPairs(rank=1, compute_s=(), step_s=()))),
            record(),
            record(distribution=None),
        ],
    )
    def test_nothing_without_pairs_of_every_rank(self, run):
        assert scaling_of(run, 9) is None
        assert sizes_to_pair(run, advise(run)) == ()

    def test_a_data_set_that_is_not_shared_has_no_epoch_law(self):
        run = record(at(9, 0.02, 0.01), discovery=discovery("RandomSampler"))
        scaling = scaling_of(run, 9)
        assert all(point.epoch_s is None for point in scaling.points)
        assert "distributed sampler" in scaling.unavailable["epoch_s"]
        assert scaling.points[1].speedup.median > 1


@pytest.mark.parametrize(
    ("sampler", "num_samples", "expected"),
    [
        ("DistributedSampler", 10_000, 40_000),
        ("BatchSamplerShard", 10_000, 10_000),
        ("RandomSampler", 10_000, None),
        ("DistributedSampler", None, None),
    ],
)
def test_samples_of_an_epoch(sampler, num_samples, expected):
    assert epoch_samples(discovery(sampler, num_samples), 4)[0] == expected


def test_ranks_that_end_their_steps_at_different_times_take_equally_long():
    """One is late in every other step and catches up: the job's step is the mean, not the later."""
    late = tuple((0.012, 0.008)[number % 2] for number in range(20))
    compute = (0.005,) * 20
    ranks = (
        RankPairs(rank=0, compute_s=compute, step_s=late),
        RankPairs(rank=1, compute_s=compute, step_s=late[::-1]),
    )
    assert scaling_of(record(of_ranks(*ranks)), 9).step_s.median == pytest.approx(0.010)
