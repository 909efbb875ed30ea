"""The stated chance of running out of memory over an epoch, beside epochs that are simulated.

10^4 epochs of heavy-tailed lengths: what is stated as 1 % occurs in 0.5 to 1.5 % of them.
"""

import random
from collections import Counter

import msgspec
import pytest
from batchadvisor.advisor.measured.epoch_chance import Epoch, chance, tail_share, worst_peak
from batchadvisor.records import LengthCensus, LengthLaw

NUM_EPOCHS = 10_000
LAW = LengthLaw(
    fixed_bytes=200e6,
    per_token_bytes=3e4,
    per_square_bytes=40.0,
    residual=0.01,
    spread=0.01,
    windows=(),
)
SURE = msgspec.structs.replace(LAW, spread=1e-6)


def heavy(num, seed):
    """Lengths with a tail: most around 50, few some hundred times as long."""
    rng = random.Random(seed)
    return [10 + int(40 * rng.paretovariate(1.6)) for _ in range(num)]


def census_of(lengths, *, complete=True):
    kinds, counts = zip(*sorted(Counter(lengths).items()), strict=True)
    return LengthCensus(lengths=kinds, counts=counts, complete=complete)


def padded_peak(law, batch):
    tokens = len(batch) * max(batch)
    return (
        law.fixed_bytes + law.per_token_bytes * tokens + law.per_square_bytes * tokens * max(batch)
    )


def summed_peak(law, batch):
    each = (law.per_token_bytes * length + law.per_square_bytes * length**2 for length in batch)
    return law.fixed_bytes + sum(each)


def capacity_for(law, census, size, epoch, wanted=0.01):
    """The capacity at which the stated chance is what is wanted."""
    low, high = law.fixed_bytes, 1e13
    for _ in range(60):
        middle = (low * high) ** 0.5
        if chance(law, census, size, int(middle), epoch) > wanted:
            low = middle
        else:
            high = middle
    return int(high)


def simulated(law, lengths, size, capacity, epoch, peak, seed=5):
    """The share of epochs in which a batch took more; the law errs by its spread in each."""
    rng = random.Random(seed)
    over = 0
    for _ in range(NUM_EPOCHS):
        if epoch.replaced:
            drawn = rng.choices(lengths, k=epoch.num_samples)
        else:
            drawn = rng.sample(lengths, epoch.num_samples)
        limit = capacity / (1 + law.spread * rng.gauss(0, 1))
        stop = len(drawn) - (len(drawn) % size if epoch.drop_last else 0)
        over += any(
            peak(law, drawn[at : min(at + size, stop)]) > limit for at in range(0, stop, size)
        )
    return over / NUM_EPOCHS


@pytest.mark.parametrize(
    ("law", "population", "epoch", "peak"),
    [
        (SURE, 4000, Epoch(100), padded_peak),
        (LAW, 4000, Epoch(100, drop_last=True), padded_peak),
        (LAW, 4000, Epoch(100, replaced=True), padded_peak),
        (SURE, 1000, Epoch(120, summed=True, replaced=True), summed_peak),
    ],
    ids=["part of the data", "with the law's error", "a stream", "packed"],
)
def test_a_stated_percent_is_one(law, population, epoch, peak):
    lengths = heavy(population, seed=3)
    census, size = census_of(lengths), 8
    capacity = capacity_for(law, census, size, epoch)
    stated = chance(law, census, size, capacity, epoch)
    # So few samples are too long that the chance moves in steps.
    assert 0.007 <= stated <= 0.0101
    occurred = simulated(law, lengths, size, capacity, epoch, peak)
    assert 0.5 <= occurred / stated <= 1.5
    assert 0.005 <= occurred <= 0.015


class TestPadded:
    def test_an_epoch_that_draws_every_sample_meets_the_longest(self):
        census = census_of(heavy(1000, seed=1))
        worst = worst_peak(SURE, 8, census.lengths[-1])
        assert chance(SURE, census, 8, int(worst * 1.001), Epoch(1000)) < 1e-9
        assert chance(SURE, census, 8, int(worst * 0.999), Epoch(1000)) > 1 - 1e-9

    def test_the_longest_may_be_among_those_that_are_dropped(self):
        census = census_of([10] * 1003 + [500])
        capacity = int(worst_peak(SURE, 10, 500) * 0.99)
        stated = chance(SURE, census, 10, capacity, Epoch(1004, drop_last=True))
        assert stated == pytest.approx(1 - 4 / 1004, abs=1e-6)

    def test_the_error_of_the_law(self):
        census = census_of([100] * 1000)
        law = msgspec.structs.replace(LAW, spread=0.02)
        capacity = int(worst_peak(law, 8, 100) * 1.02)
        assert chance(law, census, 8, capacity, Epoch(1000)) == pytest.approx(0.16, abs=0.02)

    def test_larger_sizes_are_never_safer(self):
        census = census_of(heavy(3000, seed=2))
        capacity = int(worst_peak(LAW, 16, census.lengths[-1] // 2))
        for epoch in (Epoch(3000), Epoch(500), Epoch(3000, replaced=True), Epoch(500, summed=True)):
            chances = [chance(LAW, census, size, capacity, epoch) for size in (4, 8, 16, 32, 64)]
            assert all(0 <= value <= 1 for value in chances)
            assert chances == sorted(chances) or max(chances) - min(chances) < 1e-6

    def test_a_budget_bounds_all_but_a_sequence_longer_than_it(self):
        census = census_of([10] * 500 + [2000])
        epoch = Epoch(501, by_budget=True)
        assert worst_peak(SURE, 1000, 2000, by_budget=True) == worst_peak(SURE, 1, 2000)
        capacity = int(worst_peak(SURE, 1000, 10, by_budget=True) * 1.01)
        assert chance(SURE, census, 1000, capacity, epoch) > 0.99


class TestTail:
    def test_beyond_the_longest_seen(self):
        """Of samples of a known tail: an estimate of the right order of magnitude."""
        rng = random.Random(6)
        for shape, factor in ((4.0, 4), (2.5, 12)):
            seen = [int(1000 * rng.paretovariate(shape)) for _ in range(4000)]
            census = census_of(seen, complete=False)
            length = 1.3 * max(seen)
            true = (length / 1000) ** -shape
            assert true / factor < tail_share(census, length) < true * factor

    def test_lengths_that_end_have_nothing_beyond(self):
        census = census_of(list(range(1, 1001)), complete=False)
        assert tail_share(census, 3000) < 1e-3
