"""Larger sizes after a remedy: all of the room is found, in few trials."""

import random

import pytest
from batchadvisor.features.remedies.larger import LEAST_LARGER, fastest_larger, next_larger
from batchadvisor.features.remedies.processes import Refused

from ..on_paper import trial_of


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


def test_a_peak_that_does_not_grow_doubles_and_nothing_follows_a_refusal_close_by():
    assert next_larger({64: 100, 128: 100}, None, 101) == 256
    assert next_larger({64: 100, 128: 200}, 136, 10_000) is None


class TestFastest:
    """Peaks of 10 bytes a sample, and whatever a size takes for a step."""

    def found(self, step_s, *, refused_from=10_000, room=1000, times=50):
        tried = []

        def timed(size):
            tried.append(size)
            if size >= refused_from:
                raise Refused("out of memory")
            return trial_of(size, step_s(size), peak=10 * size)

        goes_on = lambda: len(tried) < times  # noqa: E731
        return fastest_larger(timed, {16: 160}, room, allowed=int, goes_on=goes_on), tried

    def test_the_fastest_comes_first_then_smaller_ones(self):
        sizes, tried = self.found(lambda size: 1.0)
        assert sizes == sorted(tried, reverse=True)
        assert 88 <= sizes[0] <= 100

    def test_a_larger_one_that_is_slower_is_left_out(self):
        sizes, tried = self.found(lambda size: 1.0 if size < 50 else 9.0)
        assert sizes[0] == 32
        assert max(tried) > 50

    def test_what_is_refused_is_not_among_them(self):
        sizes, tried = self.found(lambda size: 1.0, refused_from=60)
        assert max(tried) >= 60 > sizes[0] >= 50

    def test_where_no_time_is_left_there_are_none(self):
        assert self.found(lambda size: 1.0, times=0) == ([], [])
