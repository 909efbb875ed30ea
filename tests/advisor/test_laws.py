"""Laws fitted to trials: exact lines come back, and what does not fit is refused."""

import pytest
from batchadvisor.advisor.measured.laws import (
    FLOOR_GROWTH,
    MAX_TIME_RESIDUAL,
    SLOPE_AGREEMENT,
    above_floor,
    fit_memory,
    fit_time,
    last_slope,
    line_through,
    size_at,
    slopes_agree,
)
from batchadvisor.advisor.measured.memory_guard import GROWTH_CAP, TRUSTED_CAP, largest_safe
from batchadvisor.records import Memory, MemoryLaw, TimeLaw
from hypothesis import given
from hypothesis import strategies as st

MIB = 2**20

sizes = st.lists(st.integers(1, 5000), min_size=3, max_size=8, unique=True)
fixed_parts = st.floats(0, 1e3)
slopes = st.floats(1e-3, 1e3)


def memory_of(peaks):
    return {size: Memory(peak_bytes=peak, peak_source="") for size, peak in peaks.items()}


def law(fixed_s, slope_s):
    return TimeLaw(fixed_s=fixed_s, slope_s=slope_s, residual=0.0, sizes=(1, 2, 4))


class TestLine:
    @given(sizes, fixed_parts, slopes)
    def test_an_exact_line_comes_back(self, xs, fixed, slope):
        line = line_through([(x, fixed + slope * x) for x in xs])
        assert line is not None
        assert line[0] == pytest.approx(fixed, rel=1e-4, abs=1e-4 * slope * max(xs))
        assert line[1] == pytest.approx(slope, rel=1e-3)
        assert line[2] < 1e-6

    @given(st.dictionaries(st.integers(1, 5000), st.floats(1e-3, 1e6), min_size=2))
    def test_no_negative_part(self, points):
        line = line_through(sorted(points.items()))
        if line is not None:
            assert line[0] >= 0
            assert line[1] > 0
            assert line[2] >= 0

    @given(
        st.dictionaries(st.integers(1, 1000), st.floats(0.1, 100), min_size=3),
        st.floats(0.01, 100),
    )
    def test_units_do_not_matter(self, points, factor):
        line = line_through(sorted(points.items()))
        scaled = line_through([(x, y * factor) for x, y in sorted(points.items())])
        if line is not None and scaled is not None and line[0] > 1e-6 * min(points.values()):
            assert scaled[1] == pytest.approx(line[1] * factor, rel=1e-6)
            assert scaled[2] == pytest.approx(line[2], rel=1e-6, abs=1e-9)

    @pytest.mark.parametrize("points", [[], [(1, 2.0)], [(4, 2.0), (4, 3.0)]])
    def test_too_few(self, points):
        assert line_through(points) is None

    @pytest.mark.parametrize("points", [[(1, 2.0), (2, 2.0)], [(1, 5.0), (2, 4.0), (4, 1.0)]])
    def test_no_growth(self, points):
        assert line_through(points) is None

    def test_a_line_that_would_start_below_zero_starts_at_zero(self):
        fixed, slope, _ = line_through([(1, 1.0), (2, 2.5), (3, 4.0)])
        assert fixed == 0
        assert 1.0 < slope < 1.5


class TestMemory:
    def test_a_law(self):
        memory_law = fit_memory({8: 180, 16: 260, 32: 420, 64: 740}, 1100)
        assert isinstance(memory_law, MemoryLaw)
        assert (memory_law.fixed_bytes, memory_law.slope_bytes) == pytest.approx((100, 10))
        assert memory_law.sizes == (16, 32, 64)
        assert memory_law.residual == pytest.approx(0, abs=1e-9)
        assert memory_law.largest_estimate in (99, 100)

    @given(sizes, st.integers(0, 10**10), st.integers(10**6, 10**8))
    def test_an_exact_line_is_kept_or_refused_never_bent(self, xs, fixed, slope):
        peaks = {x: fixed + slope * x for x in xs}
        memory_law = fit_memory(peaks, 10**12)
        if not isinstance(memory_law, str):
            assert memory_law.slope_bytes == pytest.approx(slope, rel=1e-3)
            assert memory_law.largest_estimate == pytest.approx((10**12 - fixed) / slope, rel=1e-2)

    @given(sizes, st.integers(0, 10**9), st.integers(10**6, 10**8), st.integers(10**9, 10**11))
    def test_more_memory_never_fits_less(self, xs, fixed, slope, target):
        peaks = {x: fixed + slope * x for x in xs}
        less, more = fit_memory(peaks, target), fit_memory(peaks, 2 * target)
        assert isinstance(less, str) == isinstance(more, str)
        if not isinstance(less, str):
            assert less.largest_estimate <= more.largest_estimate

    @pytest.mark.parametrize("peaks", [{}, {8: 100}, {8: 100, 16: 200}])
    def test_too_few_points(self, peaks):
        assert "three sizes" in fit_memory(peaks, 1000)

    def test_the_floor_is_left_out(self):
        """Below 64 the optimizer step sets the peak; only two sizes move it."""
        peaks = {1: 1000, 4: 1000, 16: 1005, 64: 1010, 256: 2000}
        assert above_floor(peaks) == [(64, 1010), (256, 2000)]
        assert "found: 2" in fit_memory(peaks, 10_000)

    def test_the_first_point_after_a_floor_is_not_believed(self):
        """The law after a floor is right, or there is none: the floor's end bends the line."""
        for true in (0.5, 1.0, 2.0, 5.0):
            peaks = {size: int(max(1000, 500 + true * size)) for size in (1, 8, 64, 256, 1024)}
            memory_law = fit_memory(peaks, 50_000)
            if not isinstance(memory_law, str):
                assert memory_law.slope_bytes == pytest.approx(true, rel=SLOPE_AGREEMENT)

    def test_slopes_that_disagree(self):
        assert "slope changes" in fit_memory({8: 100, 16: 200, 32: 600}, 1000)
        before = 10 * (1 - SLOPE_AGREEMENT)
        inside, outside = (int(1000 - 8 * (before + nudge)) for nudge in (0.5, -0.5))
        assert isinstance(fit_memory({8: inside, 16: 1000, 24: 1080}, 10**5), MemoryLaw)
        assert "slope changes" in fit_memory({8: outside, 16: 1000, 24: 1080}, 10**5)

    def test_memory_that_shrinks(self):
        assert "does not grow" in fit_memory({8: 100, 16: 300, 24: 250}, 1000)

    def test_last_slope(self):
        assert last_slope({8: 100, 16: 180}) == pytest.approx(10)
        assert last_slope({8: 100}) is None
        assert last_slope({8: 1000, 32: 1000 + int(900 * FLOOR_GROWTH)}) is None
        assert last_slope({8: 100, 16: 300, 24: 250}) is None

    def test_slopes_agree(self):
        assert slopes_agree({8: 100, 16: 180, 32: 340})
        assert not slopes_agree({8: 100, 16: 180, 32: 640})
        assert not slopes_agree({8: 100, 16: 180})


class TestLargestSafe:
    def test_no_readings(self):
        assert largest_safe({}, 1000, None) is None

    def test_one_reading_on_the_floor_may_double_or_grow_in_proportion(self):
        assert largest_safe(memory_of({8: 900}), 1000, None) == 16
        assert largest_safe(memory_of({8: 400}), 1000, None) == 20
        assert largest_safe(memory_of({8: 1}), 1000, None) == 8 * GROWTH_CAP

    def test_secant_with_safety(self):
        # (1000 - 500) / (1.1 x 10) more, but at most four times as many.
        assert largest_safe(memory_of({32: 420, 40: 500}), 1000, None) == 85

    def test_cap_rises_where_two_slopes_agree(self):
        assert largest_safe(memory_of({8: 180, 16: 260}), 10**9, None) == 16 * GROWTH_CAP
        assert largest_safe(memory_of({4: 140, 8: 180, 16: 260}), 10**9, None) == 16 * TRUSTED_CAP

    def test_full(self):
        assert largest_safe(memory_of({8: 1000}), 1000, None) == 8

    def test_below_a_size_over_the_target(self):
        """It bounds, its slope counts, and the largest size within the target is the base."""
        assert largest_safe(memory_of({32: 420, 128: 1380}), 1000, None) == 32 + int(580 / 11)
        assert largest_safe(memory_of({8: 990, 128: 1001}), 1000, None) == 16
        assert largest_safe(memory_of({8: 990, 10: 1001}), 1000, None) == 9
        assert largest_safe(memory_of({8: 1001, 16: 2000}), 1000, None) == 7

    def test_below_a_failure(self):
        assert largest_safe(memory_of({8: 10}), 1000, 12) == 11

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
        visible = last_slope(peaks) is not None
        if visible or (steps == 1 and fixed == 0):
            assert fixed + slope * safe <= target + slope


class TestTime:
    def test_a_law(self):
        time_law = fit_time({8: 0.18, 16: 0.26, 64: 0.74})
        assert (time_law.fixed_s, time_law.slope_s) == pytest.approx((0.1, 0.01))
        assert time_law.sizes == (8, 16, 64)

    @given(sizes, st.floats(0, 1), st.floats(1e-5, 1e-1))
    def test_an_exact_line_comes_back(self, xs, fixed, slope):
        time_law = fit_time({x: fixed + slope * x for x in xs})
        if max(xs) < 4 * min(xs):
            assert "too close together" in time_law
        else:
            assert time_law.slope_s == pytest.approx(slope, rel=1e-3)
            assert time_law.residual < 1e-6

    def test_refusals(self):
        assert "found: 2" in fit_time({1: 0.1, 8: 0.2})
        assert "too close" in fit_time({8: 0.1, 16: 0.2, 31: 0.4})
        assert "does not grow" in fit_time({1: 0.1, 4: 0.1, 8: 0.1})

    def test_a_bent_curve_is_refused_with_its_miss(self):
        time_law = fit_time({1: 0.1, 8: 0.1, 64: 0.1, 512: 0.8})
        assert "misses a measured step time" in time_law
        small_bend = fit_time({1: 0.100, 8: 0.110, 64: 0.2, 512: 0.9})
        assert small_bend.residual <= MAX_TIME_RESIDUAL


class TestSizeAt:
    @given(st.floats(1e-4, 10), st.floats(1e-5, 1), st.floats(0.01, 0.99))
    def test_its_throughput_is_the_one_asked_for(self, fixed_s, slope_s, share):
        time_law = law(fixed_s, slope_s)
        rate = share / slope_s
        size = size_at(time_law, rate)
        assert size == 1.0 or size / (fixed_s + slope_s * size) == pytest.approx(rate)
        assert size > 1.0 or 1 / (fixed_s + slope_s) >= rate * (1 - 1e-9)

    def test_no_fixed_cost(self):
        assert size_at(law(0.0, 0.01), 95.0) == 1.0

    def test_a_rate_that_no_size_reaches(self):
        assert size_at(law(0.1, 0.01), 100.0) is None
        assert size_at(law(0.1, 0.01), 120.0) is None
