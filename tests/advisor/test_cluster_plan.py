"""Records of several types put together: what is predicted, what is said, what is refused."""

import msgspec
import pytest
from batchadvisor.errors import UsageError
from batchadvisor.features.plan.page import build_plan_page
from batchadvisor.features.plan.split.interconnects import INTERCONNECTS, interconnect
from batchadvisor.features.plan.split.links import estimated_link, measured_link, sync_at
from batchadvisor.features.plan.words import snippet_of_shares
from batchadvisor.records import ScriptInfo

from ..on_paper import discovery_of, failure_of, numbered, trial_of
from ..plans import TYPES, VERSIONS, gpu_record, job_record, plan_of, probed, type_record
from .test_distribution import at, record


def said(plan, rule):
    """The message of the finding, empty where there is none."""
    return next((found.message for found in plan.findings if found.rule == rule), "")


class TestPlan:
    def test_numbers(self):
        plan = plan_of(probed("a100", 4), probed("t4", 8), global_batch=512)
        best = plan.options[0]
        sizes = {share.name: (share.num_gpus, share.batch_size) for share in best.shares}
        assert sizes == {"a100": (4, 104), "t4": (8, 12)}
        assert best.compute_s == pytest.approx(0.012 + 0.0005 * 104)
        assert best.samples_per_s == pytest.approx(512 / best.step_s)
        alone = 4 * 256 / (0.012 + 0.0005 * 256) + 8 * 64 / (0.018 + 0.0034 * 64)
        assert best.efficiency == pytest.approx(best.samples_per_s / alone, rel=1e-6)
        weights = [share.gradient_weight * share.num_gpus for share in best.shares]
        assert sum(weights) == pytest.approx(12)
        assert [share.first_rank for share in best.shares] == [0, 4]
        assert best.epoch_s == pytest.approx(31 * best.step_s)
        assert "synchronisation" in plan.unavailable
        assert plan.forecast == (), "none without a Tsync"

    def test_beside_equal_and_proportional_shares(self):
        plan = plan_of(probed("a100", 4), probed("v100", 2), probed("t4", 8), global_batch=512)
        by_kind = {option.kind: option for option in plan.options}
        best, equal = by_kind["plan"], by_kind["equal shares"]
        assert equal.compute_s == pytest.approx(0.018 + 0.0034 * 37)
        assert best.step_s < by_kind["in proportion to speed"].step_s < equal.step_s
        assert [option.name for option in plan.options if option.kind == "one type"] == [
            "a100 only", "v100 only", "t4 only",
        ]  # fmt: skip
        assert all(option.global_batch == 512 for option in plan.options)

    def test_the_sum_of_the_recommended_sizes(self):
        plan = plan_of(probed("a100", 2, recommend=128), probed("t4", 1, recommend=64))
        assert (plan.global_batch, plan.global_batch_source) == (
            320,
            "the sum of the recommended sizes",
        )

    def test_multiples_that_sizes_have_to_be(self):
        types = (probed("a100", 3), probed("t4", 5))
        plan = plan_of(*types, global_batch=600, multiple_of=6)
        assert plan.granularity % 6 == 0
        for option in plan.options:
            assert option.global_batch == 600
            assert all(share.batch_size % 6 == 0 for share in option.shares)
        by_default = plan_of(*types, multiple_of=6)
        assert by_default.global_batch % 6 == 0
        for asked, each in ((604, "multiple of 6"), (42, "6 for each GPU")):
            with pytest.raises(UsageError, match=each):
                plan_of(*types, global_batch=asked, multiple_of=6)

    def test_micro_batches_are_such_multiples_too(self):
        """Of 120 samples, where 64 fit, two halves of 60 would be none of 8."""
        small = gpu_record("Tesla T4", 0.01, 0.001, sizes=(8, 16, 32, 64), fails=(65,))
        plan = plan_of(
            probed("a100", 1), probed("t4", 1, record=small), global_batch=960, multiple_of=8
        )
        fast, slow = plan.options[0].shares
        assert (slow.micro_batches, slow.multiple_of) == (-(-slow.batch_size // 64), 8)
        assert slow.predicted_step_s == pytest.approx(
            slow.micro_batches * (0.01 + 0.001 * 8 * -(-slow.batch_size // 8 // slow.micro_batches))
        )
        code = snippet_of_shares((fast, slow)).split("# In the training loop")[0]
        code = code.split("sampler = SplitSampler")[0]
        space = {}
        exec(code, space)
        for rank, share in enumerate((fast, slow)):
            batches = list(space["SplitSampler"](960, rank))
            assert [len(each) % 8 for each in batches] == [0] * share.micro_batches
            assert sum(map(len, batches)) == share.batch_size
            assert max(map(len, batches)) <= 64 or share is fast

    def test_multiples_that_a_record_found(self):
        record = type_record("t4", sizes=(8, 16, 24, 48))
        odd = failure_of(12, "exception")
        record = msgspec.structs.replace(record, trials=numbered(*record.trials, odd))
        plan = plan_of(probed("t4", 5, record=record), global_batch=120)
        assert all(share.batch_size % 8 == 0 for share in plan.options[0].shares)

    def test_step_times_that_miss_the_measured_speed_are_a_warning(self):
        steps = {8: 0.010, 16: 0.090, 32: 0.020, 64: 0.012, 128: 0.030}
        trials = [
            trial_of(size, step_s, peak=2**30 + size * 2**20) for size, step_s in steps.items()
        ]
        steady = type_record("t4")
        stalled = msgspec.structs.replace(steady, trials=numbered(*trials))
        message = said(plan_of(probed("t4", 2, record=stalled, recommend=64)), "plan-apart")
        assert "one t4 alone did 5,330 samples/s at batch 64" in message
        assert "give 4,240 there" in message
        assert not said(plan_of(probed("t4", 2, record=steady)), "plan-apart")

    def test_above_what_fits_it_accumulates(self):
        small = gpu_record("Tesla T4", 0.01, 0.001, sizes=(8, 16, 32, 64), fails=(65,))
        plan = plan_of(probed("t4", 1, record=small), global_batch=200)
        (share,) = plan.options[0].shares
        assert (share.batch_size, share.micro_batches) == (200, 4)
        assert share.predicted_step_s == pytest.approx(4 * (0.01 + 0.001 * 50))
        assert said(plan, "plan-accumulates")

    def test_a_slow_type_is_dropped_where_that_is_quicker(self):
        crawl = gpu_record("Tesla K80", 2.0, 0.01)
        plan = plan_of(probed("a100", 2), probed("k80", 1, record=crawl), global_batch=128)
        assert {share.name for share in plan.options[0].shares} == {"a100"}
        assert plan.options[1].kind == "all types"
        assert "leaves k80 out" in said(plan, "plan-drops")
        assert plan.options[1].step_s > plan.options[0].step_s

    def test_energy_price_and_tokens(self):
        plan = plan_of(probed("a100", 1, price=2.0), probed("t4", 2, price=0.5), global_batch=256)
        best = plan.options[0]
        assert best.samples_per_joule == pytest.approx(best.samples_per_s / (300 + 2 * 70))
        assert best.samples_per_price == pytest.approx(best.samples_per_s * 3600 / 3.0)
        assert (best.tokens_per_joule, best.tokens_per_price) == (None, None)
        assert "tokens_per_s" in best.unavailable
        partly = plan_of(probed("a100", 1, price=2.0), probed("t4", 2), global_batch=256)
        assert partly.options[0].samples_per_price is None
        assert said(partly, "plan-price-missing")


class TestOneGpu:
    def test_which_of_these_cards(self):
        plan = plan_of(probed("t4", price=0.5), probed("a100", price=2.0))
        assert plan.options == ()
        assert said(plan, "plan-quickest").startswith("one a100 alone does x")
        cheapest = "a100 alone gives the most samples per unit of price"
        assert said(plan, "plan-samples-per-price").startswith(cheapest)

    def test_noise_is_no_verdict(self):
        twin = gpu_record("Tesla T4", 0.0122, 0.0005, watts=300.0)
        plan = plan_of(probed("a100"), probed("t4", record=twin))
        assert said(plan, "plan-quickest").startswith("cannot tell whether")

    def test_at_a_global_batch(self):
        plan = plan_of(probed("t4"), probed("a100"), global_batch=640)
        assert [option.name for option in plan.options] == ["one a100", "one t4"]
        assert {option.global_batch for option in plan.options} == {640}

    def test_a_card_whose_speed_alone_is_not_known_is_in_no_race(self):
        plan = plan_of(probed("t4"), probed("a100", record=job_record("a100", 64, 0.022, 0.010)))
        assert [card.samples_per_s is None for card in plan.cards] == [False, True]
        assert build_plan_page(plan).headline.startswith("Cannot tell which card is quickest.")

    def test_one_gpu_synchronises_with_nobody(self):
        assert plan_of(probed("t4", 1)).unavailable == {}
        assert "synchronisation" in plan_of(probed("t4", 2)).unavailable


OTHER_SCRIPT = ScriptInfo(path="other.py", digest="fedcba9876543210")
OTHER_TEXT = ScriptInfo(path="train.py", digest="fedc")
NO_ARGUMENTS = ScriptInfo(path="train.py", digest="0123456789abcdef")
OLDER = msgspec.structs.replace(VERSIONS, torch="2.12.0")


class TestOneJob:
    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"script": OTHER_SCRIPT}, "a100 is of train.py, t4 of other.py"),
            ({"discovery": discovery_of(num_parameters=5)}, "a100 has 1000 parameters, t4 has 5"),
            (
                {"discovery": discovery_of(steps_per_batch=2)},
                "1 optimizer steps on a batch, t4 has 2",
            ),
        ],
        ids=["script", "model", "steps"],
    )
    def test_other_jobs_are_refused(self, changes, reason):
        with pytest.raises(UsageError, match=reason):
            plan_of(probed("a100", 1), probed("t4", 1, **changes))

    @pytest.mark.parametrize(
        ("changes", "rule", "words"),
        [
            ({"script": OTHER_TEXT}, "plan-script", "a100; t4"),
            ({"script": NO_ARGUMENTS}, "plan-arguments", "t4: none"),
            ({"versions": OLDER}, "plan-torch", "a100: 2.13.0; t4: 2.12.0"),
            (
                {"discovery": discovery_of(precision="float16")},
                "plan-precision",
                "a100: float32; t4: float16",
            ),
            ({"state": "interrupted"}, "plan-unfinished", "was interrupted"),
        ],
        ids=["text", "arguments", "torch", "precision", "half"],
    )
    def test_differences_are_findings(self, changes, rule, words):
        first = type_record("a100", discovery=discovery_of(precision="float32"))
        assert words in said(
            plan_of(probed("a100", 1, record=first), probed("t4", 1, **changes)), rule
        )
        same = plan_of(probed("a100", 1), probed("v100", 1), probed("t4", 1))
        assert not said(same, rule)


class TestRefusals:
    @pytest.mark.parametrize(
        ("global_batch", "reason"),
        [
            (4, r"4 is fewer samples than there are GPUs \(12\)"),
            (20_000, "more than the 15625 of the data set"),
        ],
    )
    def test_a_global_batch_that_cannot_be_shared_out(self, global_batch, reason):
        with pytest.raises(UsageError, match=reason):
            plan_of(probed("a100", 4), probed("t4", 8), global_batch=global_batch)

    def test_half_a_record(self):
        """One size only: enough for nothing, and said of a type that is counted."""
        half = type_record("t4", sizes=(8,), state="running")
        with pytest.raises(UsageError, match=r"t4 .* fewer than two timed sizes"):
            plan_of(probed("a100", 1), probed("t4", 1, record=half))
        plan = plan_of(probed("a100", 1), probed("t4", record=half))
        assert "fewer than two timed sizes" in plan.left_out["t4"]


class TestForecast:
    def test_weak_and_strong_scaling_by_hand(self):
        link = estimated_link(interconnect("1GB/s,1ms"), "1GB/s,1ms", 10_000_000, 4)
        plan = plan_of(probed("a100", recommend=128), link=link)
        weak = {point.num_gpus: point for point in plan.forecast if point.scaling == "weak"}
        strong = {point.num_gpus: point for point in plan.forecast if point.scaling == "strong"}
        assert sorted(weak) == sorted(strong) == [1, 2, 4, 8, 16, 32, 64]
        one, eight = weak[1], weak[8]
        assert one.step_s == pytest.approx(0.076)
        sync = 2 * 7 / 8 * 0.04 + 2 * 7 * 0.001
        assert eight.sync_s == pytest.approx(sync)
        assert eight.step_s == pytest.approx(0.076 + sync)
        assert eight.global_batch == 1024
        assert eight.speedup == pytest.approx(8 * 0.076 / (0.076 + sync))
        assert eight.efficiency == pytest.approx(eight.speedup / 8)
        assert eight.epoch_s == pytest.approx(16 * eight.step_s)
        assert strong[8].batch_sizes == (16,)
        assert strong[8].step_s == pytest.approx(0.012 + 0.0005 * 16 + sync)
        assert {point.confidence for point in plan.forecast} == {"estimate"}

    def test_fewer_samples_than_gpus_has_no_point(self):
        link = estimated_link(interconnect("pcie4"), "pcie4", 1000, 4)
        plan = plan_of(probed("a100", recommend=32), link=link)
        (last,) = [p for p in plan.forecast if p.num_gpus == 64 and p.scaling == "strong"]
        assert last.step_s is None
        assert "fewer" in last.unavailable["step_s"]

    def test_sizes_are_multiples_here_too(self):
        link = estimated_link(interconnect("pcie4"), "pcie4", 1000, 4)
        types = (probed("a100", 1, recommend=128), probed("t4", 2, recommend=64))
        plan = plan_of(*types, link=link, multiple_of=24)
        assert all(size % 24 == 0 for point in plan.forecast for size in point.batch_sizes)
        weak = [point for point in plan.forecast if point.scaling == "weak"]
        assert {point.batch_sizes for point in weak if point.cards == ("1 x a100",)} == {(120,)}
        many = [p for p in plan.forecast if p.num_gpus == 16 and p.scaling == "strong"]
        assert {point.step_s for point in many} == {None}  # 216 samples are 9 such batches
        assert "with 24 each" in many[0].unavailable["step_s"]

    def test_only_a_measured_tsync_is_called_measured(self):
        job = job_record("a100", 64, 0.022, 0.010)
        own = measured_link("job", job, 64)
        other = estimated_link(interconnect("pcie4"), "pcie4", 1000, 4)
        for link, measured in ((own, {2}), (other, set())):
            plan = plan_of(probed("a100", record=job), link=link)
            seen = {p.num_gpus for p in plan.forecast if p.confidence == "measured"}
            assert seen == measured

    def test_mixed(self):
        link = estimated_link(interconnect("100GbE"), "100GbE", 1000, 4)
        plan = plan_of(probed("a100", 2), probed("t4", 4), link=link)
        mixed = [p for p in plan.forecast if len(p.cards) == 2 and p.scaling == "weak"]
        assert [point.num_gpus for point in mixed] == [3, 6, 12, 24, 48]
        assert mixed[1].cards == ("2 x a100", "4 x t4")
        assert all(0 < point.efficiency <= 1.01 for point in mixed)

    def test_measured(self):
        """Tsync of two ranks goes further by the ring's share; the factor is that of Tcomp."""
        job = record(at(64, 0.022, 0.010, alone_s=0.020))
        link = measured_link("job", job, 64)
        assert link.measured_ranks == 2
        assert link.busy_factor == pytest.approx(1.1, rel=0.02)
        two, eight = sync_at(link, 2)[0], sync_at(link, 1000)[0]
        assert two == pytest.approx(0.010, rel=0.05)
        assert eight == pytest.approx(2 * two * 0.999)
        assert sync_at(link, 1)[0] == 0

    def test_an_estimate_ends_at_64(self):
        link = estimated_link(interconnect("pcie4"), "pcie4", 1000, 4)
        assert sync_at(link, 64)[0] is not None
        seconds, reason = sync_at(link, 65)
        assert seconds is None
        assert "only a measured Tsync" in reason


class TestInterconnects:
    def test_every_rate_names_its_source(self):
        assert all(link.source for link in INTERCONNECTS.values())

    @pytest.mark.parametrize(
        ("text", "bytes_per_s"),
        [
            ("nvlink3", 300e9),
            ("PCIE3", pytest.approx(15.75e9, rel=1e-3)),
            *((text, 12.5e9) for text in ("100gbe", "100Gbps", "100Gb/s", "100 gbit/s")),
            *((text, 12.5e9) for text in ("12.5GB/s", "12.5GBps")),  # a small b is a bit
        ],
    )
    def test_the_rate_of_a_name_or_a_number(self, text, bytes_per_s):
        assert interconnect(text).bytes_per_s == bytes_per_s

    def test_bandwidth_and_latency(self):
        link = interconnect("100Gbit/s, 10us")
        assert (link.bytes_per_s, link.latency_s) == (12.5e9, pytest.approx(1e-5))

    @pytest.mark.parametrize("text", ["", "fast", "12", "12.5GB/s,5", "-1GB/s,1s", "1.2.3GB/s"])
    def test_anything_else_is_refused(self, text):
        with pytest.raises(ValueError, match="is no link: write nvlink"):
            interconnect(text)


def test_trials_of_a_script_that_accumulates_are_refused():
    trials = tuple(trial_of(size, 0.01 * size, micro_batches=2) for size in (8, 16, 32))
    doubled = gpu_record(TYPES["t4"][0], 0.1, 0.1)
    doubled = msgspec.structs.replace(doubled, trials=trials)
    with pytest.raises(UsageError, match="accumulate"):
        plan_of(probed("t4", 1, record=doubled))
