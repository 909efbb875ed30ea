"""Laws of the interval algebra, against sets of integers."""

import numpy as np
import pytest
from batchadvisor.probes.trace import intervals
from hypothesis import given
from hypothesis import strategies as st

RANGES = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda pair: (pair[0], sum(pair))),
    max_size=14,
)
WINDOW = st.tuples(st.integers(0, 70), st.integers(0, 70)).map(sorted)


def columns(ranges):
    pairs = np.array(ranges, np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def union_of(ranges):
    return intervals.union(*columns(ranges))


def points(covered):
    """The unit intervals that a set covers."""
    return {p for start, end in zip(*covered, strict=True) for p in range(start, end)}


def normal(covered):
    """Whether a set is sorted, disjoint and without empty intervals."""
    starts, ends = covered
    return bool((starts < ends).all() and (ends[:-1] < starts[1:]).all())


@given(RANGES)
def test_union_covers_what_its_parts_cover(ranges):
    covered = union_of(ranges)
    assert normal(covered)
    assert points(covered) == {p for start, end in ranges for p in range(start, end)}
    assert intervals.length(covered) == len(points(covered))


@given(RANGES, RANGES)
def test_set_operations_are_those_of_sets(left, right):
    a, b = union_of(left), union_of(right)
    for result, wanted in (
        (intervals.merge(a, b), points(a) | points(b)),
        (intervals.subtract(a, b), points(a) - points(b)),
    ):
        assert points(result) == wanted
        assert normal(result)


@given(RANGES, WINDOW)
def test_clip_and_complement_divide_the_window(ranges, window):
    covered = union_of(ranges)
    inside, outside = intervals.clip(covered, *window), intervals.complement(covered, *window)
    assert points(inside) | points(outside) == set(range(*window))
    assert not points(inside) & points(outside)
    assert intervals.length(inside) + intervals.length(outside) == window[1] - window[0]


@given(RANGES, st.lists(WINDOW, max_size=6))
def test_measure_is_the_length_of_what_lies_inside(ranges, windows):
    covered = union_of(ranges)
    measured = intervals.measure(covered, *columns(windows))
    assert measured.tolist() == [
        intervals.length(intervals.clip(covered, *window)) for window in windows
    ]


@given(st.lists(st.tuples(WINDOW, st.floats(0, 3)), max_size=10))
def test_capped_integral_is_the_sum_over_moments(weighted):
    starts, ends = columns([window for window, _ in weighted])
    weights = np.array([weight for _, weight in weighted])
    wanted = sum(
        min(1.0, sum(weight for (start, end), weight in weighted if start <= moment < end))
        for moment in range(70)
    )
    assert intervals.capped_integral(starts, ends, weights) == pytest.approx(wanted, abs=1e-9)


def test_nanoseconds_beyond_floats_stay_exact():
    start = 1_712_195_495_502_094_565
    covered = intervals.union(np.array([start]), np.array([start + 1]))
    assert intervals.length(covered) == 1
    assert intervals.measure(covered, np.array([start - 5]), np.array([start + 5])).tolist() == [1]
