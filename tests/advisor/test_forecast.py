"""Sizes to look at on fake tensors, and the range of sizes that fits on a GPU."""

import gzip
import json
import random
from pathlib import Path

import msgspec
import pytest
from batchadvisor.advisor.gpu_memory.caching_allocator import (
    LEAST_CONTEXT_BYTES,
    MOST_CONTEXT_BYTES,
)
from batchadvisor.features.estimate.fit.forecast import (
    EAGER_BYTES,
    Between,
    assumptions,
    forecast,
    most_beside,
    next_size,
    peak_range,
)
from batchadvisor.features.estimate.fit.gpu_specs import SPECS, specs_of
from batchadvisor.features.estimate.fit.gpus import (
    CARDS,
    CONTEXTS_MIB,
    EAGER_CONTEXTS_MIB,
    MEMORY_GIB,
    AmbiguousGpuError,
    gpu_named,
    nearest,
)
from batchadvisor.features.estimate.words import forecast_law_note
from batchadvisor.records import FakeTrial, LivedBefore, Variant

MIB, GIB = 1 << 20, 1 << 30
H100 = Path(__file__).parents[1] / "data" / "h100"


def trial(size, peak):
    return FakeTrial(
        batch_size=size,
        peak_bytes=peak,
        parameter_bytes=0,
        gradient_bytes=0,
        optimizer_bytes=0,
        input_bytes=0,
    )


def step(size, fixed=2 * GIB, sample=20 * MIB, temporary=5 * MIB):
    """A trial, and its requests: what stays, activations, a temporary of two of them."""
    activations = [sample * size // 10] * 10
    requests = [fixed, *activations]
    for number in range(2, 12):
        requests += [temporary * size, -(10 + number), -number]
    return trial(size, fixed + sample * size + temporary * size), tuple(requests)


def fitted(memory, sizes=(2, 16, 64, 256, 1024), make=step, **settings):
    trials, requests = zip(*map(make, sizes), strict=True)
    (answer,) = forecast(Variant(), trials, requests, [("A", memory)], **settings).gpus
    return answer


def floored(size):
    """State and an update that takes a temporary: the peak of small batches lies in it."""
    sizes = [GIB, MIB * size, 3 * MIB * size, -3, -2, GIB // 2, -4]
    peak = max(GIB + 4 * MIB * size, GIB + GIB // 2)
    return trial(size, peak), tuple(sizes)


class TestBetween:
    def test_two_small_sizes_tell_of_larger_ones_beyond_a_bend(self):
        (small, fewer), (large, more) = floored(8), floored(16)
        between = Between(small, large, fewer, more)
        assert small.peak_bytes == large.peak_bytes
        for size in (8, 12, 128, 256, 1024):
            assert between.peak_bytes(size) == floored(size)[0].peak_bytes

    def test_the_largest_by_tensors_is_not_cut_by_the_straight_line(self):
        (small, fewer), (large, more) = floored(8), floored(1024)
        between = Between(small, large, fewer, more)
        size = between.largest_by_tensors(2 * GIB)
        assert size == 256
        straight = Between(small, large, (), ())
        assert straight.largest_by_tensors(2 * GIB) < size

    def test_the_range_of_a_peak(self):
        low, high = peak_range(GIB)
        assert low < GIB < high
        assert high - low <= 0.011 * GIB


def looked_at(own, most_bytes, num_samples, peak_bytes):
    """The sizes that are looked at, where a step takes so many bytes."""
    trials = []
    while (size := next_size(trials, own, most_bytes, num_samples)) is not None:
        trials.append(trial(size, peak_bytes(size)))
    return [each.batch_size for each in trials]


class TestSizes:
    @pytest.mark.parametrize(
        ("own", "gib", "num_samples", "sample_bytes", "sizes"),
        [
            (32, 10, None, 100 * MIB, [2, 4, 32, 128]),  # until the largest GPU is full
            (32, 10, 150, 0, [2, 4, 32, 128, 150]),  # no batch is larger than the epoch
            (1, 1, None, GIB, [1, 4]),  # a script with batches of one begins there
            (1, 1, None, 0, [4**power for power in range(12)]),  # what takes nothing has an end
        ],
    )
    def test_they_grow(self, own, gib, num_samples, sample_bytes, sizes):
        found = looked_at(own, gib * GIB, num_samples, lambda size: MIB + sample_bytes * size)
        assert found == sizes

    @pytest.mark.parametrize(("num_samples", "last"), [(None, 10220), (15625, 10220), (9000, 9000)])
    def test_after_three_on_one_line_the_largest_gpu_is_filled_at_once(self, num_samples, last):
        def peak_bytes(size):
            return max(9 * GIB, 2 * GIB + 102 * MIB * size)

        sizes = looked_at(32, 1000 * GIB, num_samples, peak_bytes)
        assert sizes == [2, 4, 32, 128, 512, 2048, last]
        assert 1000 * GIB < peak_bytes(10220) < 1030 * GIB


class TestRange:
    @pytest.mark.parametrize("memory", [6 * GIB, 8 * GIB, 15 * GIB, 22 * GIB])
    def test_its_ends_are_the_tensors_alone_and_the_segments(self, memory):
        answer = fitted(memory)
        exact = (memory - LEAST_CONTEXT_BYTES - 2 * GIB) // (25 * MIB)
        assert answer.high == exact
        safe = (memory - MOST_CONTEXT_BYTES - 2 * GIB) // (25 * MIB)
        assert 0.9 * safe < answer.low <= safe
        assert answer.is_bounded

    def test_more_is_left_on_hopper(self):
        """By what trainings on an H100 took beside the allocator, and 64 MiB in it for cuBLAS."""
        taken = []
        for name in ("char_gpt", "imagenet", "nanogpt"):
            record = json.loads(gzip.decompress((H100 / f"{name}.json.gz").read_bytes()))
            memories = [trial["memory"] for trial in record["trials"] if trial["memory"]]
            taken += [each["device_used_bytes"] - each["reserved_bytes"] for each in memories]
        assert max(taken) > MOST_CONTEXT_BYTES
        assert most_beside("H100-80GB") >= max(taken) + 64 * MIB
        assert most_beside("A100-80GB") == most_beside("24GiB") == MOST_CONTEXT_BYTES
        beside, *_ = assumptions(["A100-80GB", "H200"])
        assert "300 to 650 MiB (on Hopper 906, by what an H100 took) beside" in beside

    @pytest.mark.parametrize(
        ("memory", "ends"),
        [
            (80 * GIB, (1024, 1024, False)),  # it holds the largest size that was looked at
            (2 * GIB, (0, 0, True)),
            (2 * GIB + 50 * MIB + LEAST_CONTEXT_BYTES, (0, 2, True)),  # the smallest may fit
        ],
    )
    def test_a_gpu_that_holds_all_or_nothing(self, memory, ends):
        answer = fitted(memory)
        assert (answer.low, answer.high, answer.is_bounded) == ends

    def test_requests_in_another_order_leave_a_size_that_was_looked_at(self):
        """Between two such sizes nothing is known of the segments, but each has its own."""

        def two_ways(size):
            one, requests = step(size)
            return one, requests if size < 100 else (MIB, *requests)

        assert fitted(80 * GIB, make=two_ways).low == 1024  # nor does it end at the largest
        split = fitted(8 * GIB, make=two_ways)
        assert split.low == 64
        assert fitted(8 * GIB).low > 200
        assert split.high == fitted(8 * GIB).high
        assert fitted(3 * GIB, make=two_ways).low == fitted(3 * GIB).low  # below 100 as always

        def each_its_own(size):
            one, requests = step(size)
            return one, (*[MIB] * size, *requests)

        assert fitted(2 * GIB + 800 * MIB, (16, 64), make=each_its_own).low is None

    @pytest.mark.parametrize("seed", range(20))
    def test_a_larger_gpu_never_fits_less(self, seed):
        draw = random.Random(seed)
        fixed, sample, temporary = (draw.randint(1, 4000) * MIB // k for k in (1, 100, 200))

        def make(size):
            return step(size, fixed, sample, temporary)

        answers = [fitted(memory * GIB, make=make) for memory in range(2, 40, 3)]
        highs = [answer.high for answer in answers]
        assert highs == sorted(highs)
        assert all(answer.low <= answer.high for answer in answers)

    def test_the_law_is_that_of_the_largest_sizes(self):
        trials, requests = zip(*(step(size) for size in (2, 16, 64)), strict=True)
        answer = forecast(Variant(), trials, requests, [("A", 8 * GIB)])
        assert answer.sample_bytes == 25 * MIB
        assert answer.fixed_bytes == 2 * GIB


class TestGpus:
    def test_each_figure_has_a_source(self):
        assert all(card.source and card.device_names for card in CARDS.values())
        assert CARDS["RTX-4090"].gib == 23.64

    def test_contexts_that_were_seen_lie_within_what_is_assumed(self):
        """Before any work: a training adds its libraries, and what they load."""
        for mib, source in CONTEXTS_MIB.values():
            assert 0 < mib << 20 < MOST_CONTEXT_BYTES
            assert source.startswith("github.com/")
        for name, (mib, source) in EAGER_CONTEXTS_MIB.items():
            assert CONTEXTS_MIB.get(name, (0,))[0] < mib
            assert mib << 20 < LEAST_CONTEXT_BYTES + EAGER_BYTES
            assert source.startswith("github.com/")

    @pytest.mark.parametrize(
        ("text", "name"),
        [
            ("A100 40gb", "A100-40GB"),
            ("Tesla T4", "T4"),
            ("b200", "B200"),
            ("4090", "RTX-4090"),
            ("rtx_3080", "RTX-3080-10GB"),
            ("4070", "RTX-4070"),
            ("4070 Ti", "RTX-4070-Ti"),
            ("L40", "L40"),
            ("A10", "A10"),
            ("A100-SXM4-80GB", "A100-80GB"),
            ("RTX 6000 Ada", "RTX-6000-Ada"),
            ("P100", "P100-16GB"),
            ("MI300X", "MI300X"),
            *((printed, name) for name, card in CARDS.items() for printed in card.device_names),
        ],
    )
    def test_names_as_people_and_torch_write_them(self, text, name):
        assert gpu_named(text) == (name, int(MEMORY_GIB[name] * GIB))

    @pytest.mark.parametrize(
        ("text", "names"),
        [
            ("A100", ["A100-40GB", "A100-80GB"]),
            ("Tesla V100", ["V100-16GB", "V100-32GB"]),
            ("H100", ["H100-80GB", "H100-NVL"]),
        ],
    )
    def test_an_ambiguous_name_lists_what_it_may_mean(self, text, names):
        with pytest.raises(AmbiguousGpuError) as raised:
            gpu_named(text)
        assert raised.value.names == names

    @pytest.mark.parametrize(
        "text",
        [
            *("NVIDIA GeForce RTX 4090 Laptop GPU", "GTX 1080", "", "RTX", "40GB", "16gb", "22GiB"),
            *("RTX 6000", "6000", "Quadro RTX 6000", "RTX PRO 6000", "Ada", "3090 Ti"),
        ],
    )
    def test_other_cards_are_not_taken_for_one_of_the_table(self, text):
        assert gpu_named(text) is None

    def test_speeds_of_each_have_a_source(self):
        assert set(SPECS) < set(MEMORY_GIB)
        assert all(specs.name in CARDS[name].device_names for name, specs in SPECS.items())
        for name, specs in SPECS.items():
            assert specs.tflops_per_s["float32"] > 5
            assert 300 <= specs.gb_per_s <= 8000
            assert specs.source
            assert bool(specs.sm_source) == (specs.num_sms is not None)
            assert specs_of(name) is specs_of(specs.name) is specs
        assert "L4" in SPECS
        assert specs_of("L5") is None

    def test_an_unknown_name_has_near_names(self):
        assert gpu_named("A100-41GB") is None
        assert nearest("A100-41GB")[0] == "A100-40GB"
        assert nearest("zzz") == []


def test_multiples_that_sizes_have_to_be():
    sizes, made = [], []
    while (size := next_size(made, 10, 24 * GIB, 5000, multiple_of=6)) is not None:
        sizes.append(size)
        made.append(step(size)[0])
    assert sizes == sorted(set(sizes))
    assert all(size % 6 == 0 for size in sizes if size != 10)
    free, held = (fitted(16 * GIB, sizes, multiple_of=number) for number in (1, 6))
    assert (held.low, held.high) == (free.low // 6 * 6, free.high // 6 * 6)
    assert held.high > 0


def test_no_size_takes_less_than_the_floor_that_is_said():
    """Sparse gradients have more rows in a larger batch, so the update takes more there."""
    trials = [
        msgspec.structs.replace(
            trial(size, GIB + 2 * MIB * size), outside_bytes=GIB // 2 + MIB * size
        )
        for size in (2, 64, 512)
    ]
    answer = forecast(Variant(), trials, [()] * 3, [("A", 8 * GIB)])
    assert answer.no_law == ""
    assert answer.floor_bytes == trials[0].peak_bytes
    assert "a batch of 2 or more takes at least 1.00 GiB" in forecast_law_note(answer)


def test_the_scripts_own_size_is_looked_at_beside_multiples():
    """It says whether the script fits as it is, though it is no multiple."""
    for own, num_samples, expected in ((20, None, [20, 128, 512]), (20, 100, [20, 128])):
        made = []
        while (size := next_size(made, own, 12 * GIB, num_samples, multiple_of=64)) is not None:
            made.append(step(size)[0])
        assert [trial.batch_size for trial in made] == expected

    def fits(memory):
        gpu = fitted(memory, (20, 128, 512), multiple_of=64, own=20)
        return gpu.low, gpu.high

    assert fits(4 * GIB) == (20, 64)  # 54 and 69 samples fit
    assert fits(8 * GIB) == (192, 192)
    assert fits(2 * GIB) == (0, 0)


def test_cuda_that_loads_all_kernels_takes_more_at_both_ends():
    eager, lazy = fitted(22 * GIB, eager=True), fitted(22 * GIB - EAGER_BYTES)
    assert (eager.low, eager.high) == (lazy.low, lazy.high)
    assert eager.high < fitted(22 * GIB).low
    context, *_ = assumptions(eager=True)
    assert context.startswith("CUDA and its libraries take 1900 to 2250 MiB")


def test_a_workspace_lowers_the_lower_end_alone():
    """Of the largest size of a pair, at the peak."""
    free, short = (
        fitted(22 * GIB, held=[LivedBefore(1, passing=passing)] * 5)
        for passing in ((), ((12, 5 * GIB),))
    )
    assert short.low < 0.97 * free.low
    assert short.high == free.high
