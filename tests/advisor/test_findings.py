"""Each rule once where it fires and once, close by, where it does not."""

import re

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.explain.findings import WIDE_INTERVAL, findings_of
from batchadvisor.advisor.measured.epoch_end import tail_of
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.measured.training import training_of
from batchadvisor.advisor.tails.conditions import SMALL_BATCH_NORM
from batchadvisor.records import (
    Goal,
    Memory,
    NormLayers,
    OptimizerInfo,
    Profile,
    StepFlops,
    TailCheck,
    Turns,
)

from ..on_paper import CPU, GIB, discovery_of, failure_of, loader_of, numbered, record_of, trial_of
from .finding_cases import findings


def test_nothing_to_say():
    assert findings() == {}


class TestTail:
    @pytest.mark.parametrize(
        ("outcome", "fires"),
        [("ok", False), ("exception", True), ("out_of_memory", True)],
    )
    def test_crash(self, outcome, fires):
        check = TailCheck(num_samples=40, outcome=outcome, detail="ValueError: one value")
        by_rule = findings(loader=loader_of(6440), check=check)
        assert ("tail.crash" in by_rule) is fires
        if fires:
            assert "ValueError: one value" in by_rule["tail.crash"].message
            assert by_rule["tail.crash"].severity == "error"

    @pytest.mark.parametrize("outcome", ["interrupted", "script_ended"])
    def test_a_step_that_was_cut_short_was_not_executed(self, outcome):
        check = TailCheck(num_samples=1, outcome=outcome, detail="the script finished")
        discovery = discovery_of(
            loader=loader_of(801), norm_layers=NormLayers(batch_norm=1, batch_norm_values=1)
        )
        trials = numbered(
            trial_of(8, 0.1), trial_of(1, purpose="tail", outcome=outcome, tail=check)
        )
        advice = advise(record_of(trials, discovery=discovery))
        assert advice.tail_check is None
        by_rule = {finding.rule: finding for finding in advice.findings}
        assert "tail.crash" not in by_rule
        assert by_rule["tails.norm.one-value"].severity == "error"
        assert "not executed here" in by_rule["tails.norm.one-value"].message

    @pytest.mark.parametrize("num", [0, 2])
    def test_nan(self, num):
        check = TailCheck(num_samples=40, outcome="ok", num_non_finite=num)
        by_rule = findings(loader=loader_of(6440), check=check)
        assert ("tail.nan" in by_rule) is bool(num)

    @pytest.mark.parametrize(("num_samples", "fires"), [(63, True), (64, False)])
    def test_no_steps(self, num_samples, fires):
        by_rule = findings(loader=loader_of(num_samples, drop_last=True))
        assert ("tails.loader.no-steps" in by_rule) is fires

    @pytest.mark.parametrize(
        ("num_samples", "steps"), [(64, "1 optimizer step"), (128, "2 optimizer steps")]
    )
    def test_few_steps(self, num_samples, steps):
        finding = findings(loader=loader_of(num_samples))["training.few_steps"]
        assert finding.message == f"an epoch has {steps} at this size"

    @pytest.mark.parametrize(("left", "fires"), [(0, False), (31, True), (32, False), (50, False)])
    def test_weight(self, left, fires):
        by_rule = findings(loader=loader_of(6400 + left))
        assert ("tails.loader.short" in by_rule) is fires
        if fires:
            assert "drop_last=True" in by_rule["tails.loader.short"].remedy
            assert "not measured" in by_rule["tails.loader.short"].remedy

    def test_sizes_near_by_that_ran_are_not_called_unmeasured(self):
        first, *others = tail_of(discovery_of(native=64, loader=loader_of(6401)), 64).nearest_clean
        by_rule = findings(trial_of(64, 0.1), trial_of(first, 0.1), loader=loader_of(6401))
        listed = ", ".join(map(str, others))
        assert (
            f": {first}, {listed} ({listed} not measured);" in by_rule["tails.loader.short"].remedy
        )
        every = [trial_of(size, 0.1) for size in (64, first, *others)]
        remedy = findings(*every, loader=loader_of(6401))["tails.loader.short"].remedy
        assert f"{first}, {listed}; " in remedy

    @pytest.mark.parametrize("left", [0, 31])
    def test_dropped_samples_stand_in_the_section_of_the_last_batch_only(self, left):
        assert findings(loader=loader_of(6400 + left, drop_last=True)) == {}

    def test_no_clean_size_near_by(self):
        """37 samples: batches of 3, 4 and 5 all leave one or two over."""
        tail = tail_of(discovery_of(native=8, loader=loader_of(37)), 4)
        assert not tail.nearest_clean
        assert tail.why_none_clean == "no size from 3 to 5 is without a harmful tail"
        capped = tail_of(discovery_of(native=64, loader=loader_of(6401)), 64, largest=40)
        assert capped.why_none_clean == "no other size near by is without a harmful tail"
        remedy = findings(size=4, loader=loader_of(37))["tails.loader.short"].remedy
        assert tail.why_none_clean in remedy

    def test_an_executed_step_that_failed_is_avoided(self):
        """What is offered makes steps, and none of the length that failed."""
        check = TailCheck(num_samples=1, outcome="exception", detail="ValueError: one value")
        remedy = findings(size=8, loader=loader_of(41), check=check)["tail.crash"].remedy
        assert "drop_last=True" in remedy
        (size,) = re.findall(r"batch_size = (\d+) ", remedy)
        left = 41 % int(size)
        assert left not in (0, 1)
        assert f"its last step, of {left}, was not executed" in remedy
        refused = findings(failure_of(int(size)), size=8, loader=loader_of(41), check=check)
        assert f"batch_size = {size} " not in refused["tail.crash"].remedy

    def test_no_batch_is_dropped_where_it_is_the_only_one(self):
        """5 samples in a batch of 8: drop_last would leave no step."""
        check = TailCheck(num_samples=5, outcome="exception", detail="RuntimeError: shape")
        remedy = findings(size=8, loader=loader_of(5), check=check)["tail.crash"].remedy
        assert "drop_last" not in remedy
        assert "batch_size = 5" not in remedy
        assert "batch_size = " in remedy

    def test_a_step_that_failed_and_a_loader_that_drops_already(self):
        check = TailCheck(num_samples=1, outcome="exception", detail="ValueError: one value")
        unknown = loader_of(None, iterable=True, drop_last=True)
        remedy = findings(size=8, loader=unknown, check=check)["tail.crash"].remedy
        assert "drops a short batch already" in remedy

    def test_unknown_length_says_nothing(self):
        assert findings(loader=loader_of(None), norms=NormLayers(layer_norm=2)) == {}


class TestBatchNorm:
    NORMS = NormLayers(batch_norm=2)

    @pytest.mark.parametrize(("left", "fires"), [(0, False), (1, True), (2, False)])
    def test_one_sample(self, left, fires):
        by_rule = findings(loader=loader_of(6400 + left), norms=self.NORMS)
        assert ("tails.norm.one-value" in by_rule) is fires
        if fires:
            assert "not executed here" in by_rule["tails.norm.one-value"].message

    def test_one_sample_that_failed_is_said_once(self):
        check = TailCheck(num_samples=1, outcome="exception", detail="ValueError")
        by_rule = findings(loader=loader_of(6401), norms=self.NORMS, check=check)
        assert "tail.crash" in by_rule
        assert "tails.norm.one-value" not in by_rule

    @pytest.mark.parametrize(
        ("left", "fires"), [(1, False), (2, True), (SMALL_BATCH_NORM - 1, True), (8, False)]
    )
    def test_few_samples(self, left, fires):
        by_rule = findings(loader=loader_of(6400 + left), norms=self.NORMS)
        assert ("tails.norm.few-samples" in by_rule) is fires

    @pytest.mark.parametrize(("size", "fires"), [(7, True), (8, False)])
    def test_small_batch(self, size, fires):
        loader = loader_of(size * 100)
        by_rule = findings(size=size, loader=loader, norms=self.NORMS)
        assert ("batch_norm.small" in by_rule) is fires

    def test_without_batch_norm(self):
        assert "tails.loader.short" in findings(loader=loader_of(6401))
        assert "tails.norm.one-value" not in findings(loader=loader_of(6401))
        by_rule = findings(size=4, loader=loader_of(6400), norms=NormLayers(group_norm=3))
        assert "batch_norm.small" not in by_rule


class TestMeasurement:
    @pytest.mark.parametrize(
        ("half_width", "fires"), [(WIDE_INTERVAL - 0.01, False), (WIDE_INTERVAL + 0.01, True)]
    )
    def test_noise(self, half_width, fires):
        assert ("noise" in findings(trial_of(64, 0.1, half_width=half_width))) is fires

    def test_noise_at_other_sizes_does_not_matter(self):
        by_rule = findings(trial_of(64, 0.1), trial_of(32, 0.1, half_width=0.5))
        assert "noise" not in by_rule

    @pytest.mark.parametrize("retries", [None, 0, 3])
    def test_retries(self, retries):
        memory = Memory(peak_bytes=GIB, peak_source="", num_alloc_retries=retries)
        by_rule = findings(trial_of(64, 0.1, memory=memory))
        assert ("memory.retries" in by_rule) is bool(retries)

    def test_refused(self):
        by_rule = findings(trial_of(64, 0.1), failure_of(256), failure_of(128))
        assert "out of memory at 128, 256" in by_rule["memory.refused"].message
        assert by_rule["memory.refused"].severity == "info"

    @pytest.mark.parametrize("outcome", ["exception", "hung", "no_step", "wrong_size", "crashed"])
    def test_broken(self, outcome):
        by_rule = findings(trial_of(64, 0.1), failure_of(128, outcome))
        assert by_rule[f"trial.{outcome}"].message == f"batch 128 did not run: {outcome} on paper"
        assert "memory.refused" not in by_rule

    @pytest.mark.parametrize(("size", "left_out"), [(32, False), (128, True)])
    def test_larger_sizes_are_left_out_unless_one_ran(self, size, left_out):
        by_rule = findings(trial_of(64, 0.1), failure_of(size, "exception"))
        assert ("larger sizes were left out" in by_rule["trial.exception"].remedy) is left_out

    def test_nothing_was_left_out_where_a_larger_size_ran(self):
        """Memory was refused below it, as a neighbour on the device may cause; --sizes went on."""
        by_rule = findings(failure_of(64), failure_of(128, "exception"), trial_of(256, 0.4))
        assert "left out" not in by_rule["trial.exception"].remedy

    @pytest.mark.parametrize("trial", [failure_of(1), trial_of(1, 0.1, peak=79.9 * GIB)])
    def test_nothing_fits_at_batch_1(self, trial):
        finding = findings(trial, failure_of(4))["memory.nothing_fits"]
        assert finding.severity == "error"
        assert "gradient checkpointing" in finding.remedy
        assert "memory.nothing_fits" not in findings(trial_of(1, 0.1, peak=GIB), failure_of(4))

    def test_nothing_of_the_sizes_asked_for_fits(self):
        """No option is named that contradicts the ones that were given."""
        for goal, says in (
            (Goal(), "--start 1."),
            (Goal(multiple_of=8), "--start 8."),
            (Goal(multiple_of=64), "A smaller --multiple-of"),
            (Goal(sizes=(64,)), "--sizes"),
        ):
            remedy = findings(failure_of(64), goal=goal)["memory.nothing_fits"].remedy
            assert says in remedy
            assert ("--start" in remedy) is ("--start" in says)

    def test_interrupted_is_no_failure(self):
        assert findings(trial_of(64, 0.1), failure_of(128, "interrupted")) == {}

    def test_doubts_of_one_kind_are_said_once_at_their_worst(self):
        text = "other processes used {} of 2 cores meanwhile; step times may be too long"
        by_rule = findings(
            trial_of(32, 0.1, doubts=(text.format(0.4),)),
            trial_of(64, 0.2, doubts=(text.format(1.4),)),
            trial_of(128, 0.4, doubts=(text.format(0.9),)),
        )
        assert by_rule["doubt"].message == text.format(1.4) + " (the worst of 3 trials)"

    def test_doubts_of_two_kinds_are_both_said(self):
        discovery = discovery_of(native=64, loader=loader_of(6400))
        record = record_of(
            numbered(trial_of(64, 0.1, doubts=("the clock was lowered",))),
            discovery=discovery,
            doubts=("another process uses the GPU",),
        )
        texts = [
            finding.message for finding in findings_of(Measurements.of(record), 64, None, None)
        ]
        assert texts == ["another process uses the GPU", "the clock was lowered"]

    @pytest.mark.parametrize(("step_s", "fires"), [(0.229, False), (0.25, True)])
    def test_a_step_slower_than_a_larger_one(self, step_s, fires):
        by_rule = findings(trial_of(32, step_s), trial_of(64, 0.2))
        assert ("time.falls" in by_rule) is fires
        by_rule = findings(trial_of(32, step_s, micro_batches=2), trial_of(64, 0.2))
        assert "time.falls" not in by_rule, "it is a step of two batches, not of one"

    @pytest.mark.parametrize(("rate", "fires"), [(430, False), (450, True), (600, False)])
    def test_a_faster_reading_that_nothing_was_compared_with(self, rate, fires):
        """Below the fastest there is nothing to say, and one much faster is the fastest."""
        turns = Turns(sizes=(16, 32), step_s=((0.04, 0.0725),) * 12)
        by_rule = findings(
            trial_of(16, 0.04),
            trial_of(32, 32 / 440),
            trial_of(32, kind="turns", turns=turns),
            trial_of(512, 512 / rate),
            device=CPU,
        )
        assert ("turns.left_out" in by_rule) is fires
        if fires:
            assert by_rule["turns.left_out"].message.startswith("batch 512 read faster than 32 but")


class TestBound:
    """Ten steps an epoch of 6400 samples: 640 is the largest size tried."""

    @pytest.mark.parametrize(
        ("sizes", "goal", "fires"),
        [
            ((64, 640), Goal(), True),
            ((64, 320), Goal(), False),
            ((64, 640, 1280), Goal(), False),
            ((64, 640), Goal(kind="memory"), False),
            ((64, 640), Goal(max_batch=640), False),
            ((64, 640), Goal(sizes=(64, 640)), False),
            ((64, 640), Goal(keep_effective_batch=True), False),
        ],
    )
    def test_steps(self, sizes, goal, fires):
        by_rule = findings(*(trial_of(size, 0.001 * size) for size in sizes), goal=goal)
        assert ("bound.steps" in by_rule) is fires


class TestSteering:
    @pytest.mark.parametrize("steered", ["exact", "approximate"])
    def test_approximate(self, steered):
        by_rule = findings(loader=loader_of(6400, steered=steered, sampler="ByLength"))
        assert ("steering.approximate" in by_rule) is (steered == "approximate")

    @pytest.mark.parametrize(("elsewhere", "fires"), [(0.0, False), (0.01, False), (2.1, True)])
    def test_steps_of_other_tasks(self, elsewhere, fires):
        by_rule = findings(trial_of(64, 0.1, steps_elsewhere=elsewhere))
        assert ("steps.mixed" in by_rule) is fires
        assert not fires or "holds 2.1 more on average" in by_rule["steps.mixed"].message

    @pytest.mark.parametrize("proof", ["shape", "indices"])
    def test_proof_by_indices(self, proof):
        by_rule = findings(trial_of(64, 0.1, size_proof=proof))
        assert ("steering.indices" in by_rule) is (proof == "indices")

    def test_samples_left_out(self):
        """Said once, at its worst."""
        left = {"size_proof": "indices", "mean_arrived": 63.14}
        by_rule = findings(trial_of(16, 0.05, mean_arrived=15.9), trial_of(64, 0.1, **left))
        assert "steering.indices" not in by_rule
        said = "leaves samples out: 63.1 of 64 arrived on average"
        assert said in by_rule["samples.left_out"].message


def test_no_size_was_chosen():
    record = record_of(numbered(failure_of(8), failure_of(1)))
    rules = [finding.rule for finding in findings_of(Measurements.of(record), None, None, None)]
    assert rules == ["memory.nothing_fits", "memory.refused"]


@pytest.mark.parametrize("losses", ["", "the trace is damaged: 3 events could not be read"])
def test_damaged_traces(losses):
    by_rule = findings(trial_of(64, 0.1, profile=Profile(losses=losses)))
    assert ("trace.damaged" in by_rule) is bool(losses)


def test_what_of_a_trace_was_left_out_is_said():
    clause = "3.4 s of 1 GPU event that ends after later ones of the same stream"
    by_rule = findings(trial_of(64, 0.1, profile=Profile(left_out=(clause,))))
    assert clause in by_rule["trace.left_out"].message
    assert "trace.left_out" not in findings(trial_of(64, 0.1, profile=Profile()))


@pytest.mark.parametrize(("size", "fires"), [(6400, False), (6401, True), (9000, True)])
def test_a_size_above_the_dataset_is_said(size, fires):
    found = findings(trial_of(64, 0.1), trial_of(size, 0.2))
    assert ("size.above_data" in found) is fires
    if fires:
        assert f"batch {size}: larger than the dataset" in found["size.above_data"].message


@pytest.mark.parametrize(("size", "fires"), [(20, False), (43, True)])
def test_a_tensor_beyond_what_32_bits_reach_is_said(size, fires):
    flops = StepFlops(forward=1, backward=2, largest_tensor=(size, 2047, 50_000))
    found = findings(trial_of(size, 0.2, flops=flops), size=size)
    assert ("size.beyond_index" in found) is fires
    if fires:
        assert "43 x 2047 x 50000 has 4,401,050,000 elements" in found["size.beyond_index"].message
        assert "take 20 or less" in found["size.beyond_index"].remedy


@pytest.mark.parametrize(("size", "fires"), [(64 * 32, False), (64 * 44, True)])
def test_a_step_of_many_times_the_samples_is_said(size, fires):
    """A learning rate of 0.1 would become 4.4: no number is suggested, and a warning stands."""
    loader = loader_of(640_000)
    assert ("training.far" in findings(trial_of(size, 0.2), size=size, loader=loader)) is fires
    optimizer = OptimizerInfo(
        ordinal=0, place=None, name="SGD", learning_rate=0.1, num_parameters=1, trains=True
    )
    discovery = msgspec.structs.replace(discovery_of(native=64), optimizers=(optimizer,))
    (rate,) = training_of(discovery, size, keep=False).learning_rates
    assert (rate.suggested is None) is fires
    assert ("x44, further than rules of thumb" in rate.rule) is fires
