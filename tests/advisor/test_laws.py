"""Laws fitted to trials: exact lines come back, and what does not fit is refused."""

import random
from itertools import pairwise, product

import pytest
from batchadvisor.advisor.measured.isotonic import FINEST, precisions, rising
from batchadvisor.advisor.measured.laws import (
    MAX_TIME_RESIDUAL,
    SLOPE_AGREEMENT,
    fit_memory,
    fit_time,
    interpolated,
    last_slope,
    line_through,
    size_at,
)
from batchadvisor.advisor.measured.memory_guard import GROWTH_CAP, TRUSTED_CAP, largest_safe
from batchadvisor.advisor.measured.step_law import StepLaw, fit_step_law
from batchadvisor.records import Memory, MemoryLaw, Spread, TimeLaw
from batchadvisor.spread import inverse
from hypothesis import given
from hypothesis import strategies as st

sizes = st.lists(st.integers(1, 5000), min_size=3, max_size=8, unique=True)
fixed_parts = st.floats(0, 1e3)
slopes = st.floats(1e-3, 1e3)


def memory_of(peaks):
    return {size: Memory(peak_bytes=peak, peak_source="") for size, peak in peaks.items()}


class TestLine:
    @given(sizes, fixed_parts, slopes)
    def test_an_exact_line_comes_back(self, xs, fixed, slope):
        line = line_through([(x, fixed + slope * x) for x in xs])
        assert line is not None
        assert line[0] == pytest.approx(fixed, rel=1e-4, abs=1e-4 * slope * max(xs))
        assert line[1] == pytest.approx(slope, rel=1e-3)
        assert line[2] < 1e-6

    @given(
        st.dictionaries(st.integers(1, 1000), st.floats(1e-3, 1e6), min_size=2),
        st.floats(0.01, 100),
    )
    def test_no_part_is_negative_and_units_do_not_matter(self, points, factor):
        line = line_through(sorted(points.items()))
        scaled = line_through([(x, y * factor) for x, y in sorted(points.items())])
        if line is not None:
            assert line[0] >= 0
            assert line[1] > 0
            assert line[2] >= 0
        if line is not None and scaled is not None and line[0] > 1e-6 * min(points.values()):
            assert scaled[1] == pytest.approx(line[1] * factor, rel=1e-6)
            assert scaled[2] == pytest.approx(line[2], rel=1e-6, abs=1e-9)

    @pytest.mark.parametrize(
        "points",
        [
            [],
            [(1, 2.0)],
            [(4, 2.0), (4, 3.0)],
            [(1, 2.0), (2, 2.0)],  # no growth
            [(1, 5.0), (2, 4.0), (4, 1.0)],
        ],
    )
    def test_too_few_points_or_no_growth(self, points):
        assert line_through(points) is None

    def test_a_line_that_would_start_below_zero_starts_at_zero(self):
        fixed, slope, _ = line_through([(1, 1.0), (2, 2.5), (3, 4.0)])
        assert fixed == 0
        assert 1.0 < slope < 1.5


class TestMemory:
    def test_it_is_read_from_the_three_largest_sizes(self):
        law = fit_memory({8: 180, 16: 260, 32: 420, 64: 740}, 1100)
        assert (law.fixed_bytes, law.slope_bytes) == pytest.approx((100, 10))
        assert law.sizes == (16, 32, 64)
        assert law.residual == pytest.approx(0, abs=1e-9)
        assert law.largest_estimate in (99, 100)

    @given(sizes, st.integers(0, 10**10), st.integers(10**6, 10**8), st.integers(10**9, 10**12))
    def test_an_exact_line_is_kept_or_refused_never_bent(self, xs, fixed, slope, target):
        """And more memory never fits less."""
        peaks = {x: fixed + slope * x for x in xs}
        less, more = fit_memory(peaks, target), fit_memory(peaks, 10**12)
        assert isinstance(less, str) == isinstance(more, str)
        if not isinstance(more, str):
            assert less.largest_estimate <= more.largest_estimate
            assert more.slope_bytes == pytest.approx(slope, rel=1e-3)
            assert more.largest_estimate == pytest.approx((10**12 - fixed) / slope, rel=1e-2)

    @pytest.mark.parametrize(
        ("peaks", "why"),
        [
            ({}, "three sizes"),
            ({8: 100, 16: 200}, "three sizes"),
            # Below 64 the optimizer step sets the peak; only two sizes move it.
            ({1: 1000, 4: 1000, 16: 1005, 64: 1010, 256: 2000}, "found: 2"),
            ({8: 100, 16: 200, 32: 600}, "slope changes"),
            ({8: 100, 16: 300, 24: 250}, "does not grow"),
        ],
    )
    def test_what_is_refused(self, peaks, why):
        assert why in fit_memory(peaks, 10_000)

    def test_the_first_point_after_a_floor_is_not_believed(self):
        """The law after a floor is right, or there is none: the floor's end bends the line."""
        for true in (0.5, 1.0, 2.0, 5.0):
            peaks = {size: int(max(1000, 500 + true * size)) for size in (1, 8, 64, 256, 1024)}
            law = fit_memory(peaks, 50_000)
            if not isinstance(law, str):
                assert law.slope_bytes == pytest.approx(true, rel=SLOPE_AGREEMENT)

    def test_how_far_slopes_may_disagree(self):
        before = 10 * (1 - SLOPE_AGREEMENT)
        inside, outside = (int(1000 - 8 * (before + nudge)) for nudge in (0.5, -0.5))
        assert isinstance(fit_memory({8: inside, 16: 1000, 24: 1080}, 10**5), MemoryLaw)
        assert "slope changes" in fit_memory({8: outside, 16: 1000, 24: 1080}, 10**5)


class TestLargestSafe:
    @pytest.mark.parametrize(
        ("peaks", "target", "refused", "safe"),
        [
            ({}, 1000, None, None),
            # One reading, which may lie on a floor: double, or what would fit in proportion.
            ({8: 900}, 1000, None, 16),
            ({8: 400}, 1000, None, 20),
            ({8: 1}, 1000, None, 8 * GROWTH_CAP),
            # A secant with safety: (1000 - 500) / (1.1 x 10) more.
            ({32: 420, 40: 500}, 1000, None, 85),
            # At most four times as many, more where two slopes agree.
            ({8: 180, 16: 260}, 10**9, None, 16 * GROWTH_CAP),
            ({4: 140, 8: 180, 16: 260}, 10**9, None, 16 * TRUSTED_CAP),
            ({4: 140, 8: 180, 16: 330}, 10**9, None, 16 * GROWTH_CAP),
            ({8: 100, 16: 300, 24: 250}, 300, None, 48),  # a peak that shrinks has no slope
            ({8: 1000}, 1000, None, 8),
            # A size over the target bounds, and its slope counts.
            ({32: 420, 128: 1380}, 1000, None, 32 + int(580 / 11)),
            ({8: 990, 128: 1001}, 1000, None, 16),
            ({8: 990, 10: 1001}, 1000, None, 9),
            ({8: 1001, 16: 2000}, 1000, None, 7),
            ({8: 10}, 1000, 12, 11),
        ],
    )
    def test_by_the_readings(self, peaks, target, refused, safe):
        assert largest_safe(memory_of(peaks), target, refused) == safe

    @given(
        fixed=st.integers(0, 10**9),
        slope=st.integers(10**4, 10**7),
        start=st.integers(1, 200),
        steps=st.integers(1, 4),
        margin=st.floats(0.01, 0.5),
    )
    def test_a_straight_memory_is_never_overrun(self, fixed, slope, start, steps, margin):
        """Two steps of any straight law: the next size stays within the target."""
        peaks = {start * 2**n: fixed + slope * start * 2**n for n in range(steps)}
        target = int(max(peaks.values()) * (1 + margin)) + 1
        safe = largest_safe(memory_of(peaks), target, None)
        if last_slope(peaks) is not None or (steps == 1 and fixed == 0):
            assert fixed + slope * safe <= target + slope


class TestTime:
    @given(sizes, st.floats(0, 1), st.floats(1e-5, 1e-1))
    def test_an_exact_line_comes_back(self, xs, fixed, slope):
        law = fit_time({x: fixed + slope * x for x in xs})
        if max(xs) < 4 * min(xs):
            assert "too close together" in law
        else:
            assert law.fixed_s == pytest.approx(fixed, rel=1e-4, abs=1e-4 * slope * max(xs))
            assert law.slope_s == pytest.approx(slope, rel=1e-3)
            assert law.residual < 1e-6
            assert law.sizes == tuple(sorted(xs))

    @pytest.mark.parametrize(
        ("times", "why"),
        [
            ({1: 0.1, 8: 0.2}, "found: 2"),
            ({1: 0.1, 4: 0.1, 8: 0.1}, "does not grow"),
            ({1: 0.1, 8: 0.1, 64: 0.1, 512: 0.8}, "misses a measured step time"),
        ],
    )
    def test_what_is_refused(self, times, why):
        assert why in fit_time(times)

    def test_a_small_bend_is_none(self):
        law = fit_time({1: 0.100, 8: 0.110, 64: 0.2, 512: 0.9})
        assert law.residual <= MAX_TIME_RESIDUAL


class TestSizeAt:
    @staticmethod
    def law(fixed_s, slope_s):
        return TimeLaw(fixed_s=fixed_s, slope_s=slope_s, residual=0.0, sizes=(1, 2, 4))

    @given(st.floats(1e-4, 10), st.floats(1e-5, 1), st.floats(0.01, 0.99))
    def test_its_throughput_is_the_one_asked_for(self, fixed_s, slope_s, share):
        rate = share / slope_s
        size = size_at(self.law(fixed_s, slope_s), rate)
        assert size == 1.0 or size / (fixed_s + slope_s * size) == pytest.approx(rate)
        assert size > 1.0 or 1 / (fixed_s + slope_s) >= rate * (1 - 1e-9)

    @pytest.mark.parametrize(
        ("fixed_s", "rate", "size"), [(0.0, 95.0, 1.0), (0.1, 100.0, None), (0.1, 120.0, None)]
    )
    def test_where_every_size_or_none_reaches_it(self, fixed_s, rate, size):
        assert size_at(self.law(fixed_s, 0.01), rate) == size


# isotonic regression -------------------------------------------------------------------------

values = st.floats(1e-6, 1e4)


def fitted_to(points):
    return rising([value for value, _ in points], [weight for _, weight in points])


def apart(fitted, points):
    return sum(w * (fit - value) ** 2 for fit, (value, w) in zip(fitted, points, strict=True))


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
    @given(st.lists(st.tuples(values, st.floats(1e-3, 1e6)), max_size=12))
    def test_it_never_falls_and_keeps_the_weighted_sum(self, points):
        fitted, weights = fitted_to(points), [weight for _, weight in points]
        assert len(fitted) == len(points)
        assert fitted == sorted(fitted)
        sums = [
            sum(value * weight for value, weight in zip(series, weights, strict=True))
            for series in (fitted, [value for value, _ in points])
        ]
        assert sums[0] == pytest.approx(sums[1], rel=1e-9)
        assert rising(fitted, weights) == fitted, "what rises comes back"

    @given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), min_size=1, max_size=7))
    def test_it_is_the_nearest(self, points):
        assert fitted_to(points) == pytest.approx(by_trying_all(points))


def spread(median, half, num=9):
    return Spread(
        median=median, low=median - half, high=median + half, num_samples=num, confidence=0.9
    )


STALLED = {8: spread(1.0, 0.01), 16: spread(9.0, 4.0), 32: spread(3.0, 0.02)}
TIMES = {size: time.median for size, time in STALLED.items()}
RATES = {size: inverse(time, size) for size, time in STALLED.items()}


class TestStepTimes:
    def test_between_measured_sizes(self):
        at = interpolated({8: 1.0, 16: 2.0, 32: 1.5})
        assert [at(size) for size in (1, 8, 12, 16, 24, 32, 64)] == [
            1, 1, 1.375, 1.75, 1.75, 1.75, 1.75,
        ]  # fmt: skip

    @pytest.mark.parametrize("spreads", [STALLED, RATES], ids=["times", "rates"])
    def test_a_stalled_size_raises_no_other(self, spreads):
        at = interpolated(TIMES, precisions(TIMES, spreads))
        assert at(8) == 1.0
        assert at(16) == at(32) == pytest.approx(3.0, rel=0.001)

    def test_one_value_alone_weighs_as_much_as_the_others(self):
        once = {**STALLED, 32: spread(3.0, 0.0, num=1)}
        assert precisions(TIMES, once) is None
        assert interpolated(TIMES, None)(32) == 6.0

    def test_no_time_weighs_without_bound(self):
        assert precisions({8: 2.0}, {8: spread(2.0, 0.0)}) == {8: (2 * FINEST) ** -2}


class TestStepLaw:
    """The law of a step's peak memory."""

    @pytest.mark.parametrize(
        ("peaks", "residual"),
        [
            ({8: 180.0, 16: 260.0, 32: 420.0}, 0),
            ({32: 420.0, 8: 180.0, 16: 260.0}, 0),  # in any order
            ({8: 180.0, 16: 260.0}, None),  # nothing to compare
            ({8: 182.0, 16: 260.0, 32: 420.0}, pytest.approx(2 / 182)),
        ],
    )
    def test_a_line_is_read_from_the_largest_sizes(self, peaks, residual):
        law = fit_step_law(peaks)
        assert (law.fixed_bytes, law.sample_bytes, law.residual) == (100, 10, residual)

    @pytest.mark.parametrize(
        ("peaks", "floor", "why"),
        [
            ({1: 223.6, 2: 224.6, 32: 600.0}, 0.0, "does not grow evenly"),
            ({}, 300.0, "fewer than two"),
            ({8: 500.0}, 300.0, "fewer than two"),
            ({8: 300.0, 16: 300.0}, 300.0, "fewer than two"),
            ({8: 180.0, 16: 180.0}, 0.0, "a batch of 16 took no more memory than one of 8"),
            ({8: 180.0, 16: 150.0}, 0.0, "a batch of 16 took no more memory than one of 8"),
        ],
    )
    def test_what_is_refused(self, peaks, floor, why):
        assert why in fit_step_law(peaks, floor_bytes=floor)

    def test_small_sizes_on_the_floor_do_not_bend_the_line(self):
        law = fit_step_law({1: 300.0, 32: 420.0, 64: 740.0}, floor_bytes=300.0)
        assert (law.sample_bytes, law.peak_bytes(1), law.peak_bytes(100)) == (10, 300, 1100)

    def test_nothing_fits_below_the_floor_or_the_first_sample(self):
        floored = fit_step_law({8: 380.0, 16: 460.0}, floor_bytes=350.0)
        plain = fit_step_law({8: 180.0, 16: 260.0})
        assert floored.largest_batch(349) == 0
        assert (plain.largest_batch(109), plain.largest_batch(110)) == (0, 1)

    def test_the_largest_batch_fits_and_one_more_does_not(self):
        draw = random.Random(0)
        for _ in range(500):
            fixed, slope = draw.uniform(1e6, 1e10), draw.uniform(1e3, 1e8)
            floor = draw.uniform(0, 2) * fixed
            first = int(max(0, floor * 1.01 - fixed) // slope) + draw.randint(1, 9)
            peaks = {size: fixed + slope * size for size in (first, 2 * first, 4 * first)}
            law = fit_step_law(peaks, floor_bytes=floor)
            assert isinstance(law, StepLaw), law
            far = 64 * first
            assert law.peak_bytes(far) == pytest.approx(fixed + slope * far, rel=1e-6)
            capacity = draw.uniform(0.5, 50) * fixed
            largest = law.largest_batch(capacity)
            assert largest == 0 or law.peak_bytes(largest) <= capacity
            assert law.peak_bytes(largest + 1) > capacity
