"""Isotonic regression: rises, leaves what rises alone, and is the nearest of all that rise."""

from itertools import pairwise, product

import pytest
from batchadvisor.advisor.measured.isotonic import FINEST, precisions, rising
from batchadvisor.advisor.measured.laws import interpolated
from batchadvisor.records import Spread
from batchadvisor.spread import inverse
from hypothesis import given
from hypothesis import strategies as st

values = st.floats(1e-6, 1e4)
measured = st.lists(st.tuples(values, st.floats(1e-3, 1e6)), max_size=12)


def apart(fitted, points):
    return sum(w * (fit - value) ** 2 for fit, (value, w) in zip(fitted, points, strict=True))


def fitted_to(points):
    return rising([value for value, _ in points], [weight for _, weight in points])


def by_trying_all(points):
    """The best of all ways to cut the points into runs that share their weighted mean."""
    best = None
    for cuts in product((False, True), repeat=len(points) - 1):
        runs = [[points[0]]]
        for cut, point in zip(cuts, points[1:], strict=True):
            if cut:
                runs.append([point])
            else:
                runs[-1].append(point)
        means = [sum(v * w for v, w in run) / sum(w for _, w in run) for run in runs]
        if all(a <= b for a, b in pairwise(means)):
            fitted = [mean for mean, run in zip(means, runs, strict=True) for _ in run]
            if best is None or apart(fitted, points) < apart(best, points):
                best = fitted
    return best


class TestRising:
    @given(measured)
    def test_it_never_falls_and_stays_among_the_values(self, points):
        fitted = fitted_to(points)
        assert len(fitted) == len(points)
        assert fitted == sorted(fitted)
        if points:
            ours = [value for value, _ in points]
            assert min(ours) * (1 - 1e-9) <= fitted[0]
            assert fitted[-1] <= max(ours) * (1 + 1e-9)

    @given(measured)
    def test_what_rises_comes_back(self, points):
        rise = sorted(value for value, _ in points)
        assert rising(rise, [weight for _, weight in points]) == rise

    @given(measured)
    def test_the_weighted_sum_is_kept(self, points):
        before = sum(value * weight for value, weight in points)
        fitted = fitted_to(points)
        after = sum(fit * weight for fit, (_, weight) in zip(fitted, points, strict=True))
        assert after == pytest.approx(before, rel=1e-9)

    @given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), min_size=1, max_size=7))
    def test_it_is_the_nearest(self, points):
        assert fitted_to(points) == pytest.approx(by_trying_all(points))

    def test_each_value_has_a_weight(self):
        with pytest.raises(ValueError, match="shorter"):
            rising([1.0, 2.0], [1.0])


def spread(median, half, num=9):
    return Spread(
        median=median, low=median - half, high=median + half, num_samples=num, confidence=0.9
    )


STALLED = {8: spread(1.0, 0.01), 16: spread(9.0, 4.0), 32: spread(3.0, 0.02)}
TIMES = {size: time.median for size, time in STALLED.items()}


class TestStepTimes:
    def test_a_stalled_size_raises_no_other(self):
        at = interpolated(TIMES, precisions(TIMES, STALLED))
        assert at(8) == 1.0
        assert at(16) == at(32) == pytest.approx(3.0, rel=0.001)

    def test_rates_say_the_same(self):
        rates = {size: inverse(time, size) for size, time in STALLED.items()}
        at = interpolated(TIMES, precisions(TIMES, rates))
        assert at(32) == pytest.approx(3.0, rel=0.001)

    def test_one_value_alone_weighs_as_much_as_the_others(self):
        once = {**STALLED, 32: spread(3.0, 0.0, num=1)}
        assert precisions(TIMES, once) is None
        assert interpolated(TIMES, None)(32) == 6.0

    def test_no_time_weighs_without_bound(self):
        assert precisions({8: 2.0}, {8: spread(2.0, 0.0)}) == {8: (2 * FINEST) ** -2}
