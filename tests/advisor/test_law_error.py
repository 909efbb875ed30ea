"""The stated chance where the law itself is fitted to a few windows with noise."""

import random

import msgspec
import pytest
from batchadvisor.advisor.measured.epoch_chance import Epoch, chance, worst_peak
from batchadvisor.advisor.measured.law_error import LawError, error_of
from batchadvisor.advisor.measured.length_law import LEAST_SPREAD, Point, fit_lengths
from batchadvisor.records import LengthCensus

from .test_epoch_chance import LAW, NUM_EPOCHS, census_of, heavy

SIZE = 32
"""Twice that of the largest window."""


def limit_of(error, wanted):
    """The relative error that is exceeded with this chance."""
    low, high = 0.0, 400 * error.standard
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if error.above(middle) > wanted else (low, middle)
    return high


@pytest.mark.parametrize(("square", "noise"), [(0.0, 0.01), (40.0, 0.01), (40.0, 0.03)])
def test_a_stated_percent_is_one(square, noise):
    """Each epoch has a law of its own, of five windows; every sample is drawn, the longest too."""
    rng = random.Random(7)
    true = msgspec.structs.replace(LAW, per_square_bytes=square)
    census = census_of(heavy(4000, seed=3))
    longest, epoch = census.lengths[-1], Epoch(census.num_samples)
    lengths = (census.lengths[0], 50, longest)
    places = [(8, 0), (8, 1), (16, 1), (8, 2), (16, 2)]
    over = 0
    num = NUM_EPOCHS // 4
    for number in range(num):
        law = fit_lengths(
            [
                Point(
                    size,
                    lengths[place],
                    int(worst_peak(true, size, lengths[place]) * (1 + noise * rng.gauss(0, 1))),
                )
                for size, place in places
            ]
        )
        error = error_of(law, SIZE, longest)
        capacity = int(worst_peak(law, SIZE, longest) * (1 + limit_of(error, 0.01)))
        if number < 10:
            assert 0.008 <= chance(law, census, SIZE, capacity, epoch) <= 0.012
        # Four epochs of each.
        worst = worst_peak(true, SIZE, longest)
        over += sum(worst * (1 + noise * rng.gauss(0, 1)) > capacity for _ in range(4))
    assert 0.005 <= over / (4 * num) <= 0.015


@pytest.mark.parametrize(
    ("freedom", "error"), [(1, 31.821), (2, 6.965), (3, 4.541), (4, 3.747), (9, 2.821)]
)
def test_students_distribution(freedom, error):
    """Tabled: exceeded in one of a hundred."""
    law = LawError(known=1e-9, estimated=0.02, freedom=freedom)
    assert law.above(0.02 * error) == pytest.approx(0.01, rel=1e-3)
    assert law.above(-0.02 * error) == pytest.approx(0.99, rel=1e-3)
    places = law.places()
    assert sum(weight for _, weight in places) == pytest.approx(1)
    assert sum(weight for place, weight in places if place > 0.02 * error) == pytest.approx(
        0.01, rel=0.1
    )


def test_windows_that_agree_leave_the_spread_of_equal_batches():
    points = [
        Point(num, length, 10**8 + 10**4 * num * length) for num in (4, 8) for length in (9, 99)
    ]
    law = fit_lengths(points)
    near, far = error_of(law, 8, 99), error_of(law, 400, 99)
    assert LEAST_SPREAD < near.known < far.known
    assert near.above(2.326 * near.known) == pytest.approx(0.01, rel=1e-2)


def test_a_law_without_windows_has_its_spread():
    census = LengthCensus(lengths=(100,), counts=(1000,), complete=True)
    capacity = int(worst_peak(LAW, 8, 100) * (1 + LAW.spread))
    assert chance(LAW, census, 8, capacity, Epoch(1000)) == pytest.approx(0.16, abs=0.02)
