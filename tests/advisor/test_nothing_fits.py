"""What is said where not even the smallest batch fits."""

import msgspec
import pytest
from batchadvisor.features.estimate.fit.nothing_fits import fits_nowhere, too_small
from batchadvisor.features.estimate.records import Estimate, FittedGpu, Forecast, WhatIf
from batchadvisor.features.estimate.words.nothing_fits import nothing_fits_texts
from batchadvisor.records import FakeTrial, Variant
from batchadvisor.units import GIB

FIXED = {"optimizer's state": 20 * GIB, "parameters": 10 * GIB, "gradients": 10 * GIB}


def trial(size, activations=GIB):
    at_peak = {**FIXED, "activations": size * activations}
    return FakeTrial(
        batch_size=size,
        peak_bytes=sum(at_peak.values()),
        parameter_bytes=10 * GIB,
        gradient_bytes=10 * GIB,
        optimizer_bytes=20 * GIB,
        input_bytes=0,
        at_peak=at_peak,
    )


def forecast(gpus, variant=None, activations=GIB):
    return Forecast(
        variant=variant or Variant(),
        trials=(trial(2, activations), trial(8, activations)),
        fixed_bytes=40 * GIB,
        sample_bytes=activations,
        gpus=tuple(
            FittedGpu(name=name, memory_bytes=memory * GIB, low=high, high=high)
            for name, memory, high in gpus
        ),
    )


def answer(*gpus, activations=GIB, what_ifs=(), sharded=()):
    known = Estimate(
        script="train.py",
        arguments=(),
        batch_size=8,
        micro_batches=1,
        num_parameters=1,
        num_samples=100,
        forecasts=(forecast(gpus, activations=activations),),
        what_ifs=what_ifs,
        sharded=sharded,
    )
    return msgspec.structs.replace(known, too_small=too_small(known))


def sgd(peak_gib):
    return WhatIf(
        variant=Variant(optimizer="SGD"),
        change="optimizer: SGD",
        batch_size=8,
        peak_bytes=peak_gib * GIB,
        saved_bytes=GIB,
    )


class TestTooSmall:
    def test_says_that_not_one_sample_fits_and_what_fills_the_memory(self):
        texts = nothing_fits_texts(answer(("A", 24, 0), ("B", 16, 0), ("C", 80, 8)))
        assert texts[0] == (
            "Not even one sample should fit on A and B. Whatever the batch, the script as written "
            "holds 40.00 GiB, optimizer's state first: 20.00 GiB (50%); parameters 10.00 GiB, "
            "gradients 10.00 GiB."
        )
        assert "None of the changes" in texts[1]

    def test_names_the_changes_that_would_fit_and_where(self):
        sharded = forecast([("A", 24, 4), ("B", 16, 0)], Variant(ranks=8))
        known = answer(("A", 24, 0), ("B", 16, 0), what_ifs=(sgd(15),), sharded=(sharded,))
        assert nothing_fits_texts(known)[1] == (
            "What would make it fit, by its tensors: optimizer: SGD, batch 8, on A and B; "
            "8 ranks, batch 2, on A."
        )

    def test_a_change_that_is_too_large_too_is_no_remedy(self):
        assert not answer(("A", 24, 0), what_ifs=(sgd(24),)).too_small[0].fixes

    def test_is_not_sure_where_the_activations_of_two_samples_are_too_much(self):
        (group,) = answer(("A", 45, 0), activations=4 * GIB).too_small
        assert not group.for_sure
        (text, _) = nothing_fits_texts(answer(("A", 45, 0), activations=4 * GIB))
        assert text.startswith("A batch of 2, the smallest that was looked at, should not fit on A")
        assert "take 48.00 GiB" in text

    def test_says_nothing_where_a_batch_fits(self):
        assert nothing_fits_texts(answer(("C", 80, 8))) == []

    @pytest.mark.parametrize(("memory", "nowhere"), [(24, True), (48, False)])
    def test_variants_on_a_single_gpu_are_hopeless(self, memory, nowhere):
        assert fits_nowhere(forecast([("A", 16, 0), ("B", memory, 0)])) == nowhere
