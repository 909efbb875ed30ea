"""Achieved operations per second, and the share of a GPU's dense peak."""

import pytest
from batchadvisor.advisor.measured import peaks
from batchadvisor.advisor.measured.flop_rate import flop_rate
from batchadvisor.records import DeviceInfo, Spread, StepFlops, Tokens, TokenStep, Trial

STEP_S = Spread(median=0.5, low=0.4, high=0.6, num_samples=9, confidence=0.9)


def device(name, kind="cuda"):
    return DeviceInfo(
        kind=kind, name=name, total_bytes=1, capacity_bytes=1, capacity_source="on paper"
    )


def trial(by_dtype, *, steps=(), products=0, **flops):
    model = sum(by_dtype.values())
    passes = {"forward": model // 3, "backward": model - model // 3}
    counted = StepFlops(products=products, by_dtype=by_dtype, **(passes | flops))
    tokens = Tokens(num_batches=1, evidence="attention mask", steps=tuple(steps))
    return Trial(
        ordinal=0,
        worker=0,
        batch_size=8,
        kind="timed",
        purpose="search",
        outcome="ok",
        flops=counted,
        tokens=tokens,
    )


def test_the_share_of_the_peak():
    rate = flop_rate([trial({"bfloat16": 10**14})], STEP_S, device("NVIDIA A100-SXM4-80GB"))
    assert rate.tflops_per_s.median == pytest.approx(200)
    assert rate.mfu_pct == pytest.approx(100 * 200 / 312)
    assert "a100" in rate.peak_source


def test_several_types_have_the_peak_at_which_all_take_their_time():
    # A second at the peak of each.
    flops = {"bfloat16": 312 * 10**12, "tfloat32": 156 * 10**12}
    rate = flop_rate([trial(flops)], STEP_S, device("NVIDIA A100-SXM4-80GB"))
    assert rate.peak_tflops_per_s == pytest.approx((312 + 156) / 2)
    assert rate.dtype == "bfloat16"


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        (device("AMD EPYC", "cpu"), "a CPU has no dense peak in the table"),
        (device("NVIDIA Q1000"), "does not have NVIDIA Q1000"),
        (device("Tesla T4"), "has no bfloat16 for Tesla T4"),
        (None, "a CPU has no dense peak"),
    ],
)
def test_where_no_peak_is_known_the_rate_stands_alone(where, reason):
    rate = flop_rate([trial({"bfloat16": 10**12})], STEP_S, where)
    assert rate.tflops_per_s.median == pytest.approx(2)
    assert rate.mfu_pct is None
    assert reason in rate.unavailable["mfu_pct"]


def step(positions, squares=None):
    return TokenStep(step_s=0.1, positions=positions, squares=squares)


def test_batches_of_one_length_are_counted_exactly():
    rate = flop_rate([trial({"float32": 900}, steps=[step(50)] * 3, positions=50)], STEP_S, None)
    assert (rate.per_step, rate.scaled) == (900, False)


LONGER = [step(100, 1000), step(300, 9000)]


def test_of_other_lengths_the_count_is_scaled():
    counted = trial({"float32": 1000}, products=200, steps=LONGER, positions=100, squares=1000)
    rate = flop_rate([counted], STEP_S, None)
    assert rate.per_step == 800 * 2 + 200 * 5
    assert rate.scaled


@pytest.mark.parametrize(
    "counted",
    [
        trial({"float32": 1000}, steps=LONGER),
        trial({"float32": 1000}, products=9, steps=[step(1), step(3)], positions=1),
    ],
)
def test_without_the_counted_length_nothing_is_said(counted):
    assert "does not tell its own" in flop_rate([counted], STEP_S, None)


@pytest.mark.parametrize(
    "counted", [trial({}), trial({"float32": 0}), trial({"float32": 0}, forward=8)]
)
def test_a_count_of_nothing_is_no_rate(counted):
    """As in a record that somebody edited."""
    assert flop_rate([counted], STEP_S, None) == "no operation was counted"


def test_types_that_do_not_make_the_whole():
    counted = trial({"float32": 3}, forward=10**9)
    assert flop_rate([counted], STEP_S, device("NVIDIA A100-SXM4-80GB")).mfu_pct is not None


def test_every_peak_has_a_source_and_is_dense():
    for name, entry in peaks.PEAKS.items():
        assert "." in entry.source, name
        assert entry.tflops_per_s["float32"] > 5, name
    # With sparsity the data sheets show twice as much.
    assert peaks.PEAKS["NVIDIA H100 80GB HBM3"].tflops_per_s["bfloat16"] == 989.4
    assert peaks.peaks_of("NVIDIA H100") is None
