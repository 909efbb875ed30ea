"""Medians, their intervals, and the conversion of units."""

import random

import pytest
from batchadvisor.spread import inverse, order_statistic_ranks, scaled, spread_of, student
from batchadvisor.units import (
    format_bytes,
    format_measured,
    format_seconds,
    parse_bytes,
    parse_seconds,
    parse_share,
)
from hypothesis import given
from hypothesis import strategies as st

values = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=40)


class TestSpread:
    @pytest.mark.parametrize("num", [5, 6, 10, 17, 30])
    def test_coverage(self, num):
        """The interval holds the median at least as often as it says, for a skewed law too."""
        rng = random.Random(num)
        trials = 4000
        for draw in (lambda: rng.gauss(0, 1), lambda: rng.expovariate(1) - 0.693147):
            held = 0
            for _ in range(trials):
                spread = spread_of([draw() for _ in range(num)])
                held += spread.low <= 0 <= spread.high
            nominal = order_statistic_ranks(num)[1]
            assert nominal >= 0.90
            # Three standard errors of a share near 0.95.
            assert held / trials >= nominal - 0.012
            assert held / trials <= nominal + 0.012

    @pytest.mark.parametrize("num", [1, 2, 3, 4])
    def test_few_values_say_so(self, num):
        spread = spread_of([1.0, 2.0, 3.0, 4.0][:num][::-1])
        assert (spread.low, spread.median, spread.high) == (1.0, (1 + num) / 2, float(num))
        assert spread.confidence == 1 - 2 / 2**num < 0.9

    def test_no_value_has_none(self):
        assert spread_of([]) is None

    def test_one_outlier_does_not_move_it(self):
        spread = spread_of([1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.01, 50.0])
        assert spread.high <= 1.02
        assert spread.median == 1.0

    @given(values)
    def test_order(self, xs):
        spread = spread_of(xs)
        assert min(xs) <= spread.low <= spread.median <= spread.high <= max(xs)
        assert 0 <= spread.confidence < 1
        assert spread.num_samples == len(xs)

    @given(values, st.floats(0.1, 1000))
    def test_inverse_and_scaled(self, xs, factor):
        spread = spread_of(xs)
        rate, times = inverse(spread, factor), scaled(spread, factor)
        assert rate.low <= rate.median <= rate.high
        assert rate.median == pytest.approx(factor / spread.median)
        assert times.high == pytest.approx(spread.high * factor)
        wide = spread.relative_half_width
        assert times.relative_half_width == pytest.approx(wide, rel=1e-6, abs=1e-12)

    def test_more_values_leave_more_out(self):
        leave = [order_statistic_ranks(num)[0] for num in range(1, 60)]
        assert leave == sorted(leave)
        assert leave[-1] > 15

    @pytest.mark.parametrize(
        ("degrees", "value"), [(7, 2.3646), (10, 2.2281), (20, 2.0860), (60, 2.0003), (399, 1.9659)]
    )
    def test_students_quantiles(self, degrees, value):
        assert student(degrees, 0.95) == pytest.approx(value, rel=1e-3)

    def test_width_of_a_zero_median(self):
        assert spread_of([0.0, 0.0]).relative_half_width == float("inf")


class TestUnits:
    @pytest.mark.parametrize(
        ("parse", "values"),
        [
            (
                parse_bytes,
                {"8GiB": 8 * 2**30, "8gb": 8 * 10**9, "1.5K": 1500, "0": 0, "2 TiB": 2**41},
            ),
            (parse_seconds, {"250ms": 0.25, "1.5h": 5400.0, "2 MIN": 120.0}),
            (parse_share, {"0%": 0, " 7.5 % ": 0.075, "0.99": 0.99}),
        ],
    )
    def test_what_is_read(self, parse, values):
        assert {text: parse(text) for text in values} == values

    @pytest.mark.parametrize(
        ("parse", "texts", "said"),
        [
            (
                parse_bytes,
                ["", "GiB", "-1", "1e9", "5 XB", "1,5GB"],
                "is not a size in bytes: write 8GiB",
            ),
            (parse_seconds, ["", "s", "-1s", "2 weeks"], "is not a duration: write 90s"),
            (parse_share, ["100%", "1", "5", "-1%", "five"], "is not a share"),
        ],
    )
    def test_what_is_refused(self, parse, texts, said):
        for text in texts:
            with pytest.raises(ValueError, match=said):
                parse(text)

    @given(st.integers(0, 2**50))
    def test_formatted_bytes_are_read_back_closely(self, size):
        unit = 2**20 if size >= 2**20 else 2**10
        assert parse_bytes(format_bytes(size)) == pytest.approx(size, rel=0.005, abs=unit / 2)

    @given(st.floats(0.001, 10**6))
    def test_formatted_seconds_name_a_unit(self, seconds):
        units = ("ns", "µs", "ms", "s", "min", "h", "days", "years")
        assert format_seconds(seconds).split()[-1] in units

    @given(st.floats(1e-9, 1e12), st.sampled_from([0.001, 0.01, 0.2]))
    def test_measured_values_keep_two_digits_at_least(self, value, error):
        text = format_measured(value, error)
        assert "e" not in text
        assert float(text) == pytest.approx(value, rel=0.05)
