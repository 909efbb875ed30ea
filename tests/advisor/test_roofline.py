"""Bounds of step times on paper, and what a run makes of them. No GPU measured any of it."""

import pytest
from batchadvisor.features.estimate.fit.gpu_specs import SPECS, GpuSpecs
from batchadvisor.features.estimate.fit.roofline import (
    LAUNCH_S,
    OTHER_ORDER,
    OUTSIDE,
    calibrated,
    step_bound,
    work_at,
)
from batchadvisor.records import OpWork

A100 = SPECS["A100-80GB"]


def work(size, fixed=2_039_000, sample=20_390_000):
    """A product of 312 MFLOPs a sample; an update of parameters; an operation that moves bytes."""
    return [
        OpWork("bfloat16", 312_000_000 * size, 1000),
        OpWork("", 0, fixed),
        OpWork("", 0, sample * size),
    ]


WORKS = {size: work(size) for size in (2, 8, 32, 2048)}


def test_each_operation_takes_the_longer_of_both():
    bound = step_bound("A100", A100, "bf16", 8, work(8))
    assert bound.roofline_s == pytest.approx(8e-6 + 1e-6 + 80e-6)
    assert bound.launch_s == pytest.approx(3 * LAUNCH_S)
    assert bound.seconds == bound.roofline_s
    assert bound.num_kernels == 3


def test_kernels_take_a_while_to_launch():
    bound = step_bound("A100", A100, "", 1, work(1, sample=1))
    assert bound.roofline_s < bound.launch_s == bound.seconds
    assert bound.seconds == pytest.approx(3 * LAUNCH_S)


def test_sizes_between_those_that_were_looked_at():
    assert work_at(WORKS, 100) == work(100)
    assert work_at(WORKS, 32) == work(32)
    assert work_at(WORKS, 4096) == work_at(WORKS, 1) == OUTSIDE
    other = {**WORKS, 2048: WORKS[2048][1:]}
    assert work_at(other, 100) == OTHER_ORDER
    assert work_at(other, 20) == work(20)


@pytest.mark.parametrize(
    ("specs", "given", "words"),
    [
        (None, work(2), "no bandwidth"),
        (SPECS["T4"], work(2), "no dense peak of bfloat16 for Tesla T4"),
        (A100, OUTSIDE, OUTSIDE),
    ],
)
def test_what_is_unknown_has_a_reason(specs, given, words):
    bound = step_bound("any", specs, "", 2, given)
    assert bound.seconds is None
    assert words in bound.reason


def test_without_tensor_cores_for_tf32_the_peak_of_float32_counts():
    bound = step_bound("T4", SPECS["T4"], "", 1, [OpWork("tfloat32", 8_100_000_000, 0)])
    assert bound.seconds == pytest.approx(1e-3)


def measured(*sizes, factor=lambda _: 2.0):
    return {
        size: factor(size) * step_bound("", A100, "", size, work_at(WORKS, size)).seconds
        for size in sizes
    }


def test_a_run_gives_a_factor_and_then_the_knees():
    largest = [("A100-80GB", A100, 2000), ("a GPU of 22GiB", None, 500), ("L4", SPECS["L4"], 0)]
    run = measured(8, 64, 512, factor=lambda size: {8: 2.2, 64: 2.0, 512: 1.9}[size])
    answer = calibrated(A100, run | {4096: 1.0}, WORKS, largest)
    assert answer.factor == pytest.approx(2.0)
    assert list(answer.factors) == [8, 64, 512]
    # 11 us a sample and 1 us beside: a single sample has more than 90%, but launches take 12 us.
    assert answer.knees == {"A100-80GB": 2}
    slow = GpuSpecs("NVIDIA A100-SXM4-80GB", 2039, 108, "")
    fixed = {size: work(size, fixed=2_039_000_000) for size in WORKS}
    run = {size: 3 * step_bound("", slow, "", size, fixed[size]).seconds for size in (8, 32)}
    answer = calibrated(slow, run, fixed, largest[:1])
    # 1 ms beside 11 us a sample: 90% of what 2000 samples reach.
    knee = answer.knees["A100-80GB"]
    per_s = {size: size / (1e-3 + 11e-6 * size) for size in (knee // 2, knee, 2000)}
    assert per_s[knee // 2] < 0.9 * per_s[2000] <= per_s[knee]


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (measured(8), "at least two"),
        (measured(8, 64, factor=lambda size: 8 / size), "differ by more than"),
    ],
)
def test_no_knee_where_the_bound_does_not_tell_how_time_grows(run, words):
    answer = calibrated(A100, run, WORKS, [("A100-80GB", A100, 2000)])
    assert answer.knees == {}
    assert words in answer.reason


def test_a_run_of_other_sizes_says_nothing():
    assert "no size of its timed steps" in calibrated(A100, {4096: 1.0}, WORKS, [])
