"""The law of a step's peak memory, and when there is none."""

import random

import pytest
from batchadvisor.advisor.measured.step_law import StepLaw, fit_step_law


def fitted(peaks, **options):
    law = fit_step_law(peaks, **options)
    assert isinstance(law, StepLaw), law
    return law


def test_a_line_is_read_from_three_sizes():
    law = fitted({8: 180.0, 16: 260.0, 32: 420.0})
    assert (law.fixed_bytes, law.sample_bytes, law.residual) == (100, 10, 0)


def test_two_sizes_leave_nothing_to_compare():
    assert fitted({8: 180.0, 16: 260.0}).residual is None


def test_the_order_of_sizes_does_not_matter():
    assert fitted({32: 420.0, 8: 180.0, 16: 260.0}) == fitted({8: 180.0, 16: 260.0, 32: 420.0})


def test_small_sizes_on_the_floor_do_not_bend_the_line():
    law = fitted({1: 300.0, 32: 420.0, 64: 740.0}, floor_bytes=300.0)
    assert law.sample_bytes == 10
    assert law.peak_bytes(1) == 300
    assert law.peak_bytes(100) == 1100


def test_a_small_distance_is_the_residual():
    law = fitted({8: 182.0, 16: 260.0, 32: 420.0})
    assert law.residual == pytest.approx(2 / 182)


def test_a_bend_gives_no_law():
    reason = fit_step_law({1: 223.6, 2: 224.6, 32: 600.0})
    assert isinstance(reason, str)
    assert "does not grow evenly" in reason


@pytest.mark.parametrize("peaks", [{}, {8: 500.0}, {8: 300.0, 16: 300.0}])
def test_too_few_sizes_above_the_floor(peaks):
    reason = fit_step_law(peaks, floor_bytes=300.0)
    assert isinstance(reason, str)
    assert "fewer than two" in reason


@pytest.mark.parametrize("last", [180.0, 150.0])
def test_memory_that_does_not_grow_gives_no_law(last):
    assert fit_step_law({8: 180.0, 16: last}) == ("a batch of 16 took no more memory than one of 8")


def test_nothing_fits_below_the_floor_or_the_first_sample():
    assert fitted({8: 380.0, 16: 460.0}, floor_bytes=350.0).largest_batch(349) == 0
    assert fitted({8: 180.0, 16: 260.0}).largest_batch(109) == 0
    assert fitted({8: 180.0, 16: 260.0}).largest_batch(110) == 1


def test_the_largest_batch_fits_and_one_more_does_not():
    draw = random.Random(0)
    for _ in range(500):
        fixed, slope = draw.uniform(1e6, 1e10), draw.uniform(1e3, 1e8)
        floor = draw.uniform(0, 2) * fixed
        first = int(max(0, floor * 1.01 - fixed) // slope) + draw.randint(1, 9)
        sizes = (first, 2 * first, 4 * first)
        law = fitted({size: fixed + slope * size for size in sizes}, floor_bytes=floor)
        for size in sizes:
            assert law.peak_bytes(16 * size) == pytest.approx(fixed + slope * 16 * size, rel=1e-6)
        capacity = draw.uniform(0.5, 50) * fixed
        largest = law.largest_batch(capacity)
        assert largest == 0 or law.peak_bytes(largest) <= capacity
        assert law.peak_bytes(largest + 1) > capacity
