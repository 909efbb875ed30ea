"""Larger sizes after a remedy: all of the room is found, in few trials."""

import random

import pytest
from batchadvisor.features.remedies.larger import LEAST_LARGER, next_larger


@pytest.mark.parametrize("seed", range(200))
def test_any_line_is_followed_to_its_end(seed):
    draw = random.Random(seed)
    fixed, each, room = draw.uniform(0, 500), draw.uniform(0.5, 5), 1000.0
    size = draw.randint(8, 64)
    largest = int((room - fixed) / each)
    tried, refused = {size: int(fixed + each * size)}, None
    trials = 0
    while (wanted := next_larger(tried, refused, room)) is not None:
        assert wanted > max(tried)
        assert refused is None or wanted < refused
        trials += 1
        if wanted > largest:
            refused = wanted
        else:
            tried[wanted] = int(fixed + each * wanted)
    assert trials <= 9
    assert max(tried) > largest / LEAST_LARGER / 1.05


def test_a_peak_that_does_not_grow_doubles():
    assert next_larger({64: 100, 128: 100}, None, 101) == 256


def test_nothing_beyond_a_refusal_close_by():
    assert next_larger({64: 100, 128: 200}, 136, 10_000) is None
