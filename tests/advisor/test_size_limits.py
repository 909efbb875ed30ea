"""Limits of kernels, foretold from the shapes of two steps."""

import msgspec
import pytest
from batchadvisor.features.estimate.estimate import estimate_text
from batchadvisor.features.estimate.fit.evaluation import beside_evaluation
from batchadvisor.features.estimate.fit.size_limits import size_limits
from batchadvisor.features.estimate.page import build_estimate
from batchadvisor.features.estimate.records import Estimate, EvaluationPeak, FittedGpu, Forecast
from batchadvisor.features.estimate.words.fits import evaluation_text, limit_texts
from batchadvisor.records import FakeTrial, LargeTensor, Variant
from batchadvisor.reports.blocks import Paragraph
from batchadvisor.units import GIB


def trial(size, use, *axes):
    shape = tuple(size * axis[0] if isinstance(axis, list) else axis for axis in axes)
    return FakeTrial(
        batch_size=size, peak_bytes=size, parameter_bytes=0, gradient_bytes=0, optimizer_bytes=0,
        input_bytes=0, at_peak={}, largest=(LargeTensor(use=use, shape=shape, line="a/t.py:7"),),
    )  # fmt: skip


def answer(use, *axes, high=1_000_000, sizes=(8, 64)):
    gpu = FittedGpu(name="H200", memory_bytes=140 * GIB, low=high, high=high)
    forecast = Forecast(
        variant=Variant(),
        trials=tuple(trial(size, use, *axes) for size in sizes),
        fixed_bytes=0,
        sample_bytes=1,
        gpus=(gpu,),
    )
    return Estimate(
        script="train.py", arguments=(), batch_size=8, micro_batches=1, num_parameters=1,
        num_samples=None, forecasts=(forecast,), limits=size_limits((forecast,)),
    )  # fmt: skip


def test_a_convolution_ends_where_32_bits_hold_its_offsets():
    known = answer("convolution", [1], 16, 3840)
    (limit,) = known.limits
    assert (limit.begins - 1, limit.shape) == (34_952, "B x 16 x 3840")
    (text,) = limit_texts(known)
    assert "at a/t.py:7 (B x 16 x 3840)" in text
    assert "34,952 is the last" in text
    assert text in estimate_text(known, "", width=400, color=False)
    assert Paragraph(text=text) in build_estimate(known).walk()


@pytest.mark.parametrize("axes", [([1], 2047, 50_000), ([2047], 50_000)])
def test_a_loss_is_wrong_without_a_word(axes):
    """2^32 elements are reached inside the 42nd sample."""
    known = answer("loss", *axes)
    (limit,) = known.limits
    assert (limit.begins, limit.unreached) == (21, 43)
    (text,) = limit_texts(known)
    assert "from 43 on whole samples lie beyond 2^32" in text
    assert "wrong loss there, without an error" in text


def test_a_grid_of_attention():
    known = answer("attention", [1], 8, 128, 64)
    (limit,) = known.limits
    assert limit.begins == 65_536
    (text,) = limit_texts(known)
    assert "From batch 65,536 on no kernel takes the attention at a/t.py:7" in text
    assert "65,535 blocks" in text
    windows = answer("attention", [64], 3, 49, 32)  # of an image each
    assert windows.limits[0].begins == 1024
    assert "65,535 blocks" in limit_texts(windows)[0]


def test_only_sizes_that_there_is_memory_for():
    assert answer("convolution", [1], 16, 3840, high=34_952).limits == ()
    assert len(answer("convolution", [1], 16, 3840, high=34_953).limits) == 1
    assert answer("other", 1 << 20, 1 << 12).limits == ()  # of no batch


def test_an_evaluation_that_takes_more_than_the_training():
    known = answer("other", 8, 8)
    evaluation = EvaluationPeak(peak_bytes=20 * GIB, batch="a batch of 99 of the loader")
    fits, written = beside_evaluation(evaluation, known.forecasts[0])
    assert fits.too_large == ()
    assert written == known.forecasts[0]
    known = msgspec.structs.replace(known, evaluation=fits)
    text = evaluation_text(known, 8, 10 * GIB)
    assert "on a batch of 99 of the loader, takes 20.00 GiB" in text
    assert "the evaluation needs more" in text
    assert "the evaluation needs more" in estimate_text(known, "", width=400, color=False)


def test_an_evaluation_that_no_training_size_helps():
    known = answer("other", 8, 8)
    evaluation = EvaluationPeak(peak_bytes=141 * GIB, batch="a batch of 99 of the loader")
    fits, written = beside_evaluation(evaluation, known.forecasts[0])
    assert fits.too_large == ("H200",)
    assert [(gpu.low, gpu.high) for gpu in written.gpus] == [(0, 0)]
    known = msgspec.structs.replace(known, evaluation=fits, forecasts=(written,))
    assert "does not fit on H200; no training size helps" in evaluation_text(known, 8, GIB)
    assert evaluation_text(answer("other", 8, 8), 8, GIB) == ""


def test_axes_that_are_lines_and_not_in_proportion():
    first, second = (
        FakeTrial(
            batch_size=size, peak_bytes=1, parameter_bytes=0, gradient_bytes=0, optimizer_bytes=0,
            input_bytes=0, at_peak={},
            largest=(LargeTensor(use="other", shape=(2 * size + 3, 1 << 16)),),
        )
        for size in (8, 64)
    )  # fmt: skip
    gpu = FittedGpu(name="H200", memory_bytes=1, low=1, high=1 << 30)
    (limit,) = size_limits(
        [
            Forecast(
                variant=Variant(), trials=(first, second), fixed_bytes=0, sample_bytes=1,
                gpus=(gpu,),
            )
        ]
    )  # fmt: skip
    assert limit.shape == "(2B + 3) x 65536"
    assert (2 * limit.begins + 3) << 16 > 2**31 >= (2 * limit.begins + 1) << 16
