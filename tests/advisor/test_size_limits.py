"""Sizes that no kernel takes, and GPUs on which nothing fits, foretold from fake steps."""

import msgspec
import pytest
from batchadvisor.features.estimate.estimate import estimate_text
from batchadvisor.features.estimate.fit.evaluation import beside_evaluation
from batchadvisor.features.estimate.fit.nothing_fits import fits_nowhere, too_small
from batchadvisor.features.estimate.fit.size_limits import size_limits
from batchadvisor.features.estimate.page import build_estimate
from batchadvisor.features.estimate.records import (
    Estimate,
    EvaluationPeak,
    FittedGpu,
    Forecast,
    WhatIf,
)
from batchadvisor.features.estimate.words import (
    evaluation_text,
    fitting_sizes,
    limit_texts,
    nothing_fits_texts,
)
from batchadvisor.records import FakeTrial, LargeTensor, Variant
from batchadvisor.reports.blocks import Paragraph
from batchadvisor.units import GIB


def trial_of(size, **changes):
    nothing = {"parameter_bytes": 0, "gradient_bytes": 0, "optimizer_bytes": 0, "input_bytes": 0}
    return FakeTrial(batch_size=size, **{"peak_bytes": size, "at_peak": {}, **nothing, **changes})


def forecast_of(trials, gpus, variant=None):
    """GPUs are name, GiB and the largest size that fits."""
    fitted = tuple(
        FittedGpu(name=name, memory_bytes=memory * GIB, low=high, high=high)
        for name, memory, high in gpus
    )
    return Forecast(
        variant=variant or Variant(),
        trials=tuple(trials),
        fixed_bytes=0,
        sample_bytes=1,
        gpus=fitted,
    )


def estimate_of(forecast, **changes):
    return Estimate(
        script="train.py", arguments=(), batch_size=8, micro_batches=1, num_parameters=1,
        num_samples=None, forecasts=(forecast,), **changes,
    )  # fmt: skip


def limited(use, *axes, high=1_000_000):
    """Of a tensor whose axes are numbers, or lists where they go with the batch."""
    trials = []
    for size in (8, 64):
        shape = tuple(size * axis[0] if isinstance(axis, list) else axis for axis in axes)
        tensor = LargeTensor(use=use, shape=shape, line="a/t.py:7")
        trials.append(trial_of(size, largest=(tensor,)))
    forecast = forecast_of(trials, [("H200", 140, high)])
    return estimate_of(forecast, limits=size_limits((forecast,)))


class TestKernels:
    def test_a_convolution_ends_where_32_bits_hold_its_offsets(self):
        known = limited("convolution", [1], 16, 3840)
        (limit,) = known.limits
        assert (limit.begins - 1, limit.shape) == (34_952, "B x 16 x 3840")
        (text,) = limit_texts(known)
        assert "at a/t.py:7 (B x 16 x 3840)" in text
        assert "34,952 is the last" in text
        assert text in estimate_text(known, "", width=400, color=False)
        assert Paragraph(text=text) in build_estimate(known).walk()

    @pytest.mark.parametrize("axes", [([1], 2047, 50_000), ([2047], 50_000)])
    def test_a_loss_is_wrong_without_a_word(self, axes):
        """2^32 elements are reached inside the 42nd sample."""
        known = limited("loss", *axes)
        (limit,) = known.limits
        assert (limit.begins, limit.unreached) == (21, 43)
        (text,) = limit_texts(known)
        assert "from 43 on whole samples lie beyond 2^32" in text
        assert "wrong loss there, without an error" in text

    @pytest.mark.parametrize(
        ("axes", "begins"),
        [(([1], 8, 128, 64), 65_536), (([64], 3, 49, 32), 1024)],
        ids=["samples", "windows of an image each"],
    )
    def test_a_grid_of_attention(self, axes, begins):
        known = limited("attention", *axes)
        assert known.limits[0].begins == begins
        (text,) = limit_texts(known)
        assert f"From batch {begins:,} on no kernel takes the attention at a/t.py:7" in text
        assert "65,535 blocks" in text

    def test_only_sizes_that_there_is_memory_for(self):
        assert limited("convolution", [1], 16, 3840, high=34_952).limits == ()
        assert len(limited("convolution", [1], 16, 3840, high=34_953).limits) == 1
        assert limited("other", 1 << 20, 1 << 12).limits == ()  # of no batch

    def test_axes_that_are_lines_and_not_in_proportion(self):
        trials = [
            trial_of(size, largest=(LargeTensor(use="other", shape=(2 * size + 3, 1 << 16)),))
            for size in (8, 64)
        ]
        (limit,) = size_limits([forecast_of(trials, [("H200", 140, 1 << 30)])])
        assert limit.shape == "(2B + 3) x 65536"
        assert (2 * limit.begins + 3) << 16 > 2**31 >= (2 * limit.begins + 1) << 16


class TestEvaluation:
    def beside(self, peak_gib, *, eager=False):
        known = limited("other", 8, 8)
        peak_bytes = int(peak_gib * GIB)
        evaluation = EvaluationPeak(peak_bytes=peak_bytes, batch="a batch of 99 of the loader")
        bf16 = msgspec.structs.replace(known.forecasts[0], variant=Variant(bf16=True))
        fits, forecasts = beside_evaluation(evaluation, (*known.forecasts, bf16), eager=eager)
        return msgspec.structs.replace(known, evaluation=fits, forecasts=tuple(forecasts))

    def test_one_that_takes_more_than_the_training(self):
        known = self.beside(20)
        assert known.evaluation.too_large == ()
        assert known.forecasts[:1] == limited("other", 8, 8).forecasts
        text = evaluation_text(known, 8, 10 * GIB)
        assert "on a batch of 99 of the loader, takes 20.00 GiB" in text
        assert "the evaluation needs more" in text
        assert "the evaluation needs more" in estimate_text(known, "", width=400, color=False)

    def test_one_that_no_training_size_helps(self):
        known = self.beside(141)
        assert known.evaluation.too_large == ("H200",)
        written, bf16 = (forecast.gpus[0] for forecast in known.forecasts)
        assert (written.low, written.high) == (0, 0)
        assert (bf16.low, bf16.high) == (0, 1_000_000)  # its evaluation was not looked at
        page = estimate_text(known, "", width=400, color=False)
        assert "none at most 1000000" in " ".join(page.split())
        assert "does not fit on H200; no training size helps" in evaluation_text(known, 8, GIB)
        assert evaluation_text(limited("other", 8, 8), 8, GIB) == ""

    @pytest.mark.parametrize(("peak_gib", "eager"), [(139.3, False), (138, True)])
    def test_one_that_may_not_fit_leaves_no_lower_end(self, peak_gib, eager):
        """A Hopper card keeps up to 906 MiB from tensors, and 300 at least."""
        known = self.beside(peak_gib, eager=eager)
        assert known.evaluation.too_large == ()
        assert [(gpu.low, gpu.high) for gpu in known.forecasts[0].gpus] == [(0, 1_000_000)]

    def test_one_that_is_too_large_says_nothing_of_the_training(self):
        known = self.beside(141)
        alone = limited("other", 8, 8).forecasts[0]
        assert too_small(known)
        assert too_small(known, alone) == ()


@pytest.mark.parametrize(
    ("low", "is_bounded", "text"),
    [(9, False, "9 or more"), (None, False, "maybe 64 or more"), (None, True, "at most 64")],
)
def test_sizes_without_a_lower_end(low, is_bounded, text):
    gpu = FittedGpu(name="T4", memory_bytes=GIB, low=low, high=64, is_bounded=is_bounded)
    assert fitting_sizes(gpu, None, 2) == text


HELD = {"parameter_bytes": 10 * GIB, "gradient_bytes": 10 * GIB, "optimizer_bytes": 20 * GIB}


def heavy(gpus, variant=None, activations=GIB):
    """A script that holds 40 GiB whatever its batch."""
    trials = []
    for size in (2, 8):
        at_peak = {
            "optimizer's state": 20 * GIB,
            "parameters": 10 * GIB,
            "gradients": 10 * GIB,
            "activations": size * activations,
        }
        trials.append(trial_of(size, peak_bytes=sum(at_peak.values()), at_peak=at_peak, **HELD))
    return forecast_of(trials, gpus, variant)


def unfit(*gpus, activations=GIB, **changes):
    known = estimate_of(heavy(gpus, activations=activations), **changes)
    return msgspec.structs.replace(known, too_small=too_small(known))


def sgd(peak_gib):
    return WhatIf(
        variant=Variant(optimizer="SGD"), change="optimizer: SGD", batch_size=8,
        peak_bytes=peak_gib * GIB, saved_bytes=GIB,
    )  # fmt: skip


class TestTooSmall:
    def test_says_that_not_one_sample_fits_and_what_fills_the_memory(self):
        texts = nothing_fits_texts(unfit(("A", 24, 0), ("B", 16, 0), ("C", 80, 8)))
        assert texts[0] == (
            "Not even one sample should fit on A and B. Whatever the batch, the script as written "
            "holds 40.00 GiB, optimizer's state first: 20.00 GiB (50%); parameters 10.00 GiB, "
            "gradients 10.00 GiB."
        )
        assert "None of the changes" in texts[1]

    def test_names_the_changes_that_would_fit_and_where(self):
        sharded = heavy([("A", 24, 4), ("B", 16, 0)], Variant(ranks=8))
        known = unfit(("A", 24, 0), ("B", 16, 0), what_ifs=(sgd(15),), sharded=(sharded,))
        assert nothing_fits_texts(known)[1] == (
            "What would make it fit, by its tensors: optimizer: SGD, batch 8, on A and B; "
            "8 ranks, batch 2, on A."
        )

    def test_a_change_that_is_too_large_too_is_no_remedy(self):
        assert not unfit(("A", 24, 0), what_ifs=(sgd(24),)).too_small[0].fixes

    def test_is_not_sure_where_the_activations_of_two_samples_are_too_much(self):
        known = unfit(("A", 45, 0), activations=4 * GIB)
        assert not known.too_small[0].for_sure
        (text, _) = nothing_fits_texts(known)
        assert text.startswith("A batch of 2, the smallest that was looked at, should not fit on A")
        assert "take 48.00 GiB" in text

    def test_says_nothing_where_a_batch_fits(self):
        assert nothing_fits_texts(unfit(("C", 80, 8))) == []

    @pytest.mark.parametrize(("memory", "nowhere"), [(24, True), (48, False)])
    def test_variants_on_a_single_gpu_are_hopeless(self, memory, nowhere):
        assert fits_nowhere(heavy([("A", 16, 0), ("B", memory, 0)])) == nowhere
