"""Sizes for devices of unlike speed: exact, within bounds, and what is said of them."""

import itertools
import random

import msgspec
import pytest
import torch
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.explain.distribution_findings import chunks
from batchadvisor.advisor.split.allocation import allocate
from batchadvisor.advisor.split.twins import compare, twin_of
from batchadvisor.records import DeviceRun, SplitPlan, TwinCheck
from batchadvisor.spread import ratio_of

from ..on_paper import GIB, exactly, failure_of, numbered, record_of, trial_of
from ..splits import answer_of, plan_of, three


def accumulating(fixed, slope, cap):
    """Step times of a device that accumulates above its cap."""
    return lambda size: -(-size // cap) * fixed + slope * size


def sizes_of(plan):
    return {share.device: share.batch_size for share in plan.shares}


@pytest.fixture(scope="module")
def unlike():
    return three()


class TestAllocate:
    def test_against_every_other_split(self):
        """400 random cases: no other sizes within the caps have a shorter slowest step."""
        chance = random.Random(7)
        held = 0
        for _ in range(400):
            count = chance.randint(1, 4)
            portion = chance.choice([1, 1, 2, 4])
            times = [
                accumulating(chance.uniform(0, 20), chance.uniform(0.1, 4), chance.randint(2, 12))
                for _ in range(count)
            ]
            caps = [chance.randint(0, 20) for _ in range(count)]
            smallest = chance.choice([0, portion])
            total = portion * chance.randint(1, 24 // portion)
            sizes = allocate(total, times, caps, granularity=portion, smallest=smallest)
            ranges = [range(smallest, cap + 1, portion) for cap in caps]
            possible = [
                max(time(size) for time, size in zip(times, split, strict=True))
                for split in itertools.product(*ranges)
                if sum(split) == total
            ]
            if not possible:
                assert sizes is None
                continue
            held += 1
            assert sum(sizes) == total
            assert all(
                size <= cap and size % portion == 0 for size, cap in zip(sizes, caps, strict=True)
            )
            slowest = max(time(size) for time, size in zip(times, sizes, strict=True))
            assert slowest == pytest.approx(min(possible), rel=1e-12)
        assert held > 150

    @pytest.mark.parametrize("count", [2, 3, 5])
    def test_equal_devices_get_equal_shares(self, count):
        times = [lambda size: 3 + 0.25 * size] * count
        assert allocate(48 * count, times, [999] * count, granularity=8) == (48,) * count
        assert max(allocate(48 * count + 1, times, [999] * count)) == 49

    def test_a_total_that_is_no_multiple(self):
        with pytest.raises(ValueError, match="multiples of 8"):
            allocate(12, [float], [99], granularity=8)


class TestPlan:
    def test_numbers(self, unlike):
        plan = plan_of(unlike)
        assert isinstance(plan, SplitPlan)
        assert plan.global_batch == sum(sizes_of(plan).values()) == 256
        assert plan.global_batch_source == "the sum of the recommended sizes"
        assert plan.granularity == 4  # 16 portions a device of 8 would be more than there are
        assert sizes_of(plan) == {"fast": 164, "middle": 72, "slow": 20}
        assert plan.predicted_step_s == pytest.approx(0.094)
        assert plan.predicted_samples_per_s == pytest.approx(256 / 0.094)
        assert plan.spread_pct == pytest.approx(100 * (1 - 86 / 94))
        assert [share.gradient_weight for share in plan.shares] == pytest.approx(
            [164 * 3 / 256, 72 * 3 / 256, 20 * 3 / 256]
        )
        assert "synchronisation" in plan.unavailable
        assert {share.time_source for share in plan.shares} == {"time law"}
        assert [share.predicted_step_s for share in plan.shares] == pytest.approx(
            [0.012 + 0.0005 * 164, 0.014 + 0.0011 * 72, 0.018 + 0.0034 * 20]
        )
        assert msgspec.json.decode(msgspec.json.encode(plan), type=SplitPlan) == plan

    def test_what_else_could_be_done(self, unlike):
        plan = plan_of(unlike)
        kinds = [option.kind for option in plan.options]
        assert kinds == ["plan", "equal shares", "in proportion to speed", *["fastest only"] * 2]
        by_kind = {option.kind: option for option in plan.options[:3]}
        equal = by_kind["equal shares"]
        assert equal.batch_sizes == (86, 85, 85)
        assert equal.step_s == pytest.approx(0.018 + 0.0034 * 85)
        assert equal.samples_per_s == pytest.approx(256 / equal.step_s)
        proportion = by_kind["in proportion to speed"]
        assert sum(proportion.batch_sizes) == 256
        assert plan.predicted_step_s < proportion.step_s < equal.step_s
        alone, two = plan.options[3:]
        assert (alone.devices, alone.batch_sizes) == (("fast",), (256,))
        assert alone.step_s == pytest.approx(0.14)
        assert two.devices == ("fast", "middle")
        assert plan.remarks == ()  # without the slow one it takes 0.106 s

    def test_a_size_that_ran_is_marked(self, unlike):
        """Of the two equal devices both get what they were measured at."""
        plan = plan_of({"a": unlike["fast"], "b": unlike["fast"]})
        assert sizes_of(plan) == {"a": 128, "b": 128}
        assert all(share.step_s.median == pytest.approx(0.076) for share in plan.shares)
        assert all(share.step_s is None for share in plan_of(unlike).shares[:2])
        assert plan.spread_pct == 0

    def test_leaving_the_slowest_out(self, unlike):
        crawl = answer_of(0.2, 0.01, recommend=8)
        plan = plan_of({"fast": unlike["fast"], "crawl": crawl})
        assert plan.remarks[0].startswith("Without crawl the others are predicted to do x")
        near = answer_of(0.07, 0.0012, recommend=8)
        (remark,) = plan_of({"fast": unlike["fast"], "near": near}).remarks
        assert remark.startswith("Leaving near out is predicted to cost only ")

    def test_never_above_a_cap(self):
        """The fast device could do more than ever ran on it; what failed is a bound as well."""
        fast = answer_of(0.001, 0.0001, fails=[300], recommend=256)
        slow = answer_of(0.001, 0.01, recommend=256)
        plan = plan_of({"fast": fast, "slow": slow})
        share = plan.shares[0]
        assert share.batch_size == 296  # a multiple of 8 below 300
        assert (share.largest, share.largest_source) == (299, "memory law")
        equal, alone = plan.options[1], plan.options[-1]
        assert equal.step_s is not None
        assert (alone.global_batch, alone.batch_sizes) == (296, (296,))

    @pytest.mark.parametrize(
        ("peaks", "failures", "largest"),
        [
            ({}, (), 64),
            ({}, (failure_of(64, purpose="confirm", worker=1),), 32),
            ({64: 1.95 * GIB}, (), 32),
            ({32: 1.95 * GIB, 64: 1.96 * GIB}, (), 16),
        ],
        ids=["all", "refused since", "over the margin", "two over it"],
    )
    def test_a_size_that_the_advice_refuses_is_given_to_nobody(self, peaks, failures, largest):
        trials = [
            trial_of(size, 0.05 + 0.01 * size, peak=peaks.get(size, GIB))
            for size in (8, 16, 32, 64)
        ]
        record = record_of(numbered(*trials, *failures), capacity=2 * GIB)
        slow = answer_of(0.15, 0.03, sizes=(8, 16, 32), recommend=8)
        plan = plan_of({"one": (record, advise(record)), "slow": slow}, global_batch=24)
        share = plan.shares[0]
        assert (share.largest, share.largest_ran, share.largest_source) == (largest, 64, "ran")

    def test_a_plan_that_is_held_by_a_cap_says_so(self):
        bounded = {"sizes": (16, 32, 64), "fails": [65], "recommend": 64}
        answers = {
            "fast": answer_of(0.001, 0.0001, **bounded),
            "slow": answer_of(0.001, 0.001, **bounded),
        }
        plan = plan_of(answers)
        assert sizes_of(plan) == {"fast": 64, "slow": 64}
        assert plan.remarks[0].startswith("Held by the most that may be given: fast (64);")
        assert plan.remarks[0].endswith(
            "A global batch of about 70 (advise --global-batch) would be balanced."
        )
        balanced = plan_of(answers, global_batch=70)
        assert sizes_of(balanced) == {"fast": 64, "slow": 6}
        assert balanced.spread_pct < 6
        assert not any("Held" in remark for remark in balanced.remarks)

    def test_an_option_that_does_not_fit_says_so(self, unlike):
        small = answer_of(0.02, 0.002, sizes=(2, 4, 8, 16), recommend=16, fails=[20])
        plan = plan_of({"fast": unlike["fast"], "small": small})
        assert sizes_of(plan)["small"] <= 16
        equal = plan.options[1]
        assert equal.step_s is None
        assert equal.unavailable["step_s"] == "small may get 16 at most"

    def test_another_global_batch(self, unlike):
        plan = plan_of(unlike, global_batch=100)
        assert (plan.global_batch, plan.global_batch_source) == (100, "as asked")
        assert sum(sizes_of(plan).values()) == 100

    def test_there_may_be_no_plan(self, unlike):
        few = {name: answer_of(0.01, 0.001, recommend=64, num_samples=100) for name in "ab"}
        assert plan_of(few) == "a step of 128 samples is more than the 100 of the data set"
        assert plan_of({"fast": unlike["fast"]}) == "the run was on one device"
        assert "cannot be split over 3 devices" in plan_of(unlike, global_batch=9999)


class TestTwins:
    def runs(self, verdict, ratio=None, **changes):
        check = TwinCheck(
            twin="a", batch_size=128, verdict=verdict, ratio=ratio,
            samples_per_s=exactly(128 / 0.08), **changes,
        )  # fmt: skip
        return [
            DeviceRun(device="a", model="T", folder="a"),
            DeviceRun(device="b", model="T", folder="a", twin_of="a", check=check),
        ]

    @pytest.fixture
    def answers(self, unlike):
        return {"a": unlike["fast"], "b": unlike["fast"]}

    @pytest.mark.parametrize(
        ("verdict", "ratio"), [("equal", exactly(0.98)), ("cannot tell", exactly(0.9, 0.2))]
    )
    def test_equal_is_taken_as_equal(self, answers, verdict, ratio):
        """So is what noise leaves open: two of one model get one share."""
        plan = plan_of(answers, self.runs(verdict, ratio))
        assert sizes_of(plan) == {"a": 128, "b": 128}
        twin = plan.shares[1]
        assert (twin.twin_of, twin.speed_ratio, twin.largest_source) == ("a", 1, "memory law")
        assert twin.step_s.median == pytest.approx(0.08)  # its own, of the check

    def test_else_the_measured_ratio_scales_its_law(self, answers):
        reference, twin = plan_of(answers, self.runs("cannot tell", exactly(0.5))).shares
        assert twin.predicted_step_s == pytest.approx((0.012 + 0.0005 * twin.batch_size) / 0.5)
        assert reference.batch_size > twin.batch_size

    def test_without_a_ratio_it_is_left_out(self, answers):
        runs = self.runs("cannot tell", unavailable={"ratio": "the size was not timed on both"})
        reason = plan_of(answers, runs)
        assert "b: it could not be compared with a: the size was not timed on both" in reason


class TestLeftOut:
    def test_what_is_missing_is_named(self, unlike):
        runs = [DeviceRun(device=name, model=name, folder=name) for name in unlike]
        runs.append(DeviceRun(device="dead", model="x", error="Error: no power."))
        plan = plan_of(unlike, runs)
        assert plan.left_out == {"dead": "no power."}
        assert "dead" not in sizes_of(plan)

    def test_one_timed_size_is_no_law(self, unlike):
        lone = answer_of(0.01, 0.001, sizes=(8,))
        plan = plan_of({**unlike, "lone": lone})
        assert "fewer than two timed sizes" in plan.left_out["lone"]

    def test_two_timed_sizes_are_joined(self, unlike):
        pair = answer_of(0.01, 0.001, sizes=(8, 64), kind="cpu")
        plan = plan_of({"fast": unlike["fast"], "pair": pair})
        share = plan.shares[1]
        assert share.time_source == "interpolated"
        assert (share.largest, share.largest_source, plan.granularity) == (64, "ran", 1)

    def test_accumulation(self, unlike):
        record, advice = unlike["fast"]
        trials = tuple(msgspec.structs.replace(trial, micro_batches=2) for trial in record.trials)
        plan = plan_of({**unlike, "more": (msgspec.structs.replace(record, trials=trials), advice)})
        assert "accumulate" in plan.left_out["more"]


# which devices are twins ---------------------------------------------------------------------


def test_the_first_of_each_model_is_probed():
    models = ["A100", "T4", "A100"]
    assert [twin_of(models, place) for place in range(3)] == [None, None, 0]


@pytest.mark.parametrize(
    ("speed", "half_width", "expected"),
    [
        (40, 0.02, "weak"),
        (150, 0.02, "strong"),
        (99, 0.01, "equal"),
        (90, 0.2, "cannot tell"),
        (97, 0.001, "equal"),  # slower, but not so that it matters
    ],
)
def test_what_the_ratio_of_two_says(speed, half_width, expected):
    ratio = ratio_of(exactly(speed, half_width), exactly(100, half_width))
    assert ratio.low <= ratio.median <= ratio.high
    assert compare(ratio) == expected


@pytest.mark.parametrize("num", [2, 3, 4, 8])
def test_chunks_of_data_parallel_are_those_of_torch(num):
    for batch in range(1, 70):
        of_torch = tuple(len(chunk) for chunk in torch.arange(batch).chunk(num))
        assert chunks(batch, num) == of_torch
