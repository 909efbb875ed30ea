"""The answer around the choice: none at all, the line to change, laws and tails."""

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.choose.finalists import finalists
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.measured.trials import pooled
from batchadvisor.advisor.search.confirmation import next_tail
from batchadvisor.advisor.search.cost import Budget
from batchadvisor.records import (
    BatchSizeSource,
    Fault,
    Goal,
    NormLayers,
    OtherPlace,
    SourceLine,
    TailCheck,
    Trial,
)

from ..on_paper import GIB, discovery_of, failure_of, loader_of, numbered, record_of, trial_of
from .machine import Machine
from .small_search import confirm, search_of


def wide(trial):
    """Its throughput, uncertain by a tenth."""
    rate = trial.samples_per_s
    return msgspec.structs.replace(rate, low=0.9 * rate.median, high=1.1 * rate.median)


class TestNothing:
    def test_out_of_memory(self):
        advice = advise(record_of(numbered(failure_of(8), failure_of(2), failure_of(1))))
        assert advice.headline == "No batch size can be recommended."
        assert advice.reason == "Nothing fits within 80.00 GiB: batch 1 ran out of memory."
        assert (advice.recommended, advice.sureness, advice.change) == (None, "none", "")
        assert advice.verdict.limit == "cannot tell"

    def test_another_failure(self):
        advice = advise(record_of(numbered(failure_of(8, "exception"))))
        assert advice.reason == "Batch 8 failed: exception on paper"

    @pytest.mark.parametrize("kind", ["knee", "throughput", "energy"])
    def test_sizes_that_were_not_timed_fit_all_the_same(self, kind):
        fits = [trial_of(size, peak=size * GIB) for size in (8, 16, 64)]
        record = record_of(numbered(*fits, failure_of(80)), goal=Goal(kind="memory"))
        assert advise(record).recommended.batch_size == 64
        assert advise(record, Goal(kind=kind)).reason == (
            f"Sizes up to 64 ran and none of them was timed, which --goal {kind} needs. "
            "--goal memory does not."
        )

    def test_a_size_that_failed_since_is_no_size_without_a_time(self):
        trials = (trial_of(8, peak=GIB), failure_of(8, purpose="confirm", worker=1))
        assert advise(record_of(numbered(*trials))).reason.startswith("Nothing fits")

    def test_a_fault_before_any_trial(self):
        fault = Fault(outcome="hung", detail="nothing was heard", worker=0)
        assert advise(record_of(faults=(fault,))).reason == "nothing was heard"

    def test_nothing_at_all(self):
        record = record_of(stop_reason="interrupted by Ctrl-C")
        record = msgspec.structs.replace(record, discovery=None, device=None)
        advice = advise(record)
        assert advice.reason == "interrupted by Ctrl-C"
        assert (advice.training, advice.tail, advice.memory_law) == (None, None, None)
        assert set(advice.unavailable) == {"time_law", "memory_law"}

    def test_all_that_ran_is_over_the_margin(self):
        result = Machine(memory=lambda size: int(0.97 * 80 * GIB)).search()
        assert result.size is None
        assert result.advice.reason == (
            "Every size that ran takes more than 76.00 GiB (capacity less 5%): "
            "batch 1 took 77.60 GiB."
        )


class TestChange:
    def change(self, loader=None):
        """The text for a search that ends at 32; the script's own size is 8."""
        discovery = discovery_of(loader=loader or loader_of())
        record = record_of(numbered(*search_of({8: 0.1, 32: 0.16})), discovery=discovery)
        return advise(record).change

    def with_source(self, **changes):
        values = {"place": SourceLine(file="conf.py", line=3), "before": "batch_size=8"}
        return self.change(loader=loader_of(source=BatchSizeSource(**{**values, **changes})))

    def test_without_source(self):
        assert self.change() == "train.py:7  batch_size=8 → 32"
        assert self.change(loader=loader_of(place=None)) == "batch_size=8 → 32"

    def test_place_only(self):
        assert self.with_source() == "conf.py:3  batch_size=8  (8 → 32)"

    def test_template(self):
        text = self.with_source(template="batch_size={}")
        assert text == "conf.py:3  batch_size=8 → batch_size=32"

    def test_braces_in_the_source_stay(self):
        text = self.with_source(before="cfg['{b}'] = 8", template="cfg['{{b}}'] = {}")
        assert text == "conf.py:3  cfg['{b}'] = 8 → cfg['{b}'] = 32"

    def test_option(self):
        text = self.with_source(before="default=8", template="default={}", option="--bs")
        assert text == "conf.py:3  default=8 → default=32   (or on the command line: --bs 32)"
        text = self.with_source(before="--bs 8", template="--bs {}", option="--bs")
        assert text == "conf.py:3  --bs 8 → --bs 32"
        text = self.with_source(before="-b 8", template="-b {}", option="--bs")
        assert text == "conf.py:3  -b 8 → -b 32"
        text = self.with_source(before="a.bs=8", template="a.bs={}", option="a.bs=", place=None)
        assert text == "on the command line: a.bs=8 → a.bs=32"
        text = self.with_source(before="bs: 8", template="bs: {}", option="a.bs=")
        assert text == "conf.py:3  bs: 8 → bs: 32   (or on the command line: a.bs=32)"

    def test_further_places(self):
        base, other = SourceLine(file="base.yaml", line=3), SourceLine(file="b.yaml", line=1)
        others = (OtherPlace(place=base, number=8), OtherPlace(place=other, number=4))
        text = self.with_source(before="bs: 8", template="bs: {}", others=others)
        assert text == (
            "conf.py:3  bs: 8 → bs: 32; or base.yaml:3: the same number, and the one that is read "
            "last counts; also set at b.yaml:1 (4), not to the size in use"
        )
        assert self.with_source(others=others[1:]).endswith(
            "; also set at b.yaml:1 (4), not to the size in use"
        )

    def test_accumulation(self):
        trials = [
            trial_of(size, step_s, micro_batches=2)
            for size, step_s in ((4, 0.1), (8, 0.2), (2, 0.1))
        ]
        record = record_of(
            numbered(*trials),
            discovery=discovery_of(8, micro_batches=2),
            goal=Goal(keep_effective_batch=True),
        )
        advice = advise(record)
        assert advice.change == "train.py:7  batch_size=8 → 4; accumulate over 4 micro-batches"
        assert advice.training.effective_after == 16
        place = SourceLine(file="a.yaml", line=5)
        written = BatchSizeSource(place=place, before="accum: 2", template="accum: {}")
        found = msgspec.structs.replace(record.discovery, accumulation=written)
        change = advise(msgspec.structs.replace(record, discovery=found)).change
        assert change.endswith("; accumulate over 4 micro-batches: a.yaml:5  accum: 2 → accum: 4")


class TestFacts:
    def test_laws_and_why_not(self):
        advice = advise(record_of(numbered(*search_of({8: 0.18, 16: 0.26, 64: 0.74}))))
        assert advice.time_law.fixed_s == pytest.approx(0.1)
        assert advice.memory_law is None or advice.memory_law.sizes
        few = advise(record_of(numbered(trial_of(8, 0.1))))
        assert few.time_law is None
        assert "three timed sizes" in few.unavailable["time_law"]
        assert "three sizes" in few.unavailable["memory_law"]

    def test_tail_and_its_check(self):
        check = TailCheck(num_samples=9, outcome="ok", num_non_finite=1)
        tail = trial_of(9, purpose="tail", tail=check)
        record = record_of(numbered(*search_of(), tail))
        advice = advise(record)
        assert (advice.tail.last_batch, advice.tail_check) == (9, check)
        # A check of another length says nothing about this one.
        other = advise(record, Goal(kind="throughput", tolerance=0.0))
        assert other.tail.last_batch == 15625 % 64 == 9
        assert advise(record, Goal(tolerance=0.7)).tail_check is None

    def test_the_tail_that_runs_is_that_of_the_recommended_size(self):
        """Noise keeps the script's own size, so it is the end of its epochs that must hold."""
        noisy = search_of({4: 0.2, 8: 0.1, 12: 0.135})
        noisy = [msgspec.structs.replace(trial, samples_per_s=wide(trial)) for trial in noisy]
        record = record_of(numbered(*noisy), goal=Goal(kind="throughput"))
        assert advise(record).recommended.batch_size == 8
        measurements = Measurements.of(record)
        assert finalists(measurements)[0] == 12
        request = next_tail(measurements, Budget(measurements))
        assert (request.purpose, request.batch_size) == ("tail", 15625 % 8)

    def test_one_sample_speaks_where_the_end_is_unknown(self):
        check = TailCheck(num_samples=1, outcome="exception", detail="ValueError: one value")
        tail = trial_of(1, purpose="tail", outcome="exception", tail=check)
        discovery = discovery_of(
            loader=loader_of(None, iterable=True), norm_layers=NormLayers(batch_norm=1)
        )
        advice = advise(record_of(numbered(*search_of(), tail), discovery=discovery))
        assert (advice.tail, advice.tail_check) == (None, check)
        assert "batchadvisor tails --samples N" in advice.unavailable["tail"]
        (crash,) = (finding for finding in advice.findings if finding.rule == "tail.crash")
        assert "how an epoch ends is unknown, and a step of 1 sample failed" in crash.message

    def test_sizes_near_by_stay_within_memory_and_carry_the_law(self):
        times = {size: 0.02 + 0.001 * size for size in (8, 16, 32, 64)}
        trials = numbered(*(trial_of(size, step) for size, step in times.items()))
        advice = advise(record_of(trials))
        assert advice.time_law is not None
        assert advice.tail.clean_sizes
        for clean in advice.tail.clean_sizes:
            predicted = clean.batch_size / (0.02 + 0.001 * clean.batch_size)
            assert clean.predicted_samples_per_s == pytest.approx(predicted, rel=1e-3)
        largest = advice.recommended.batch_size
        capped = advise(record_of(trials, goal=Goal(max_batch=largest)))
        assert any(near.batch_size > largest for near in advice.tail.clean_sizes)
        assert all(near.batch_size < largest for near in capped.tail.clean_sizes)

    def test_memory_after_a_larger_size_is_trusted_less(self):
        trials = numbered(
            trial_of(8, peak=100),
            trial_of(64, peak=900),
            trial_of(8, peak=700),
            trial_of(32, peak=950),
            trial_of(32, peak=400, worker=1),
        )
        peaks = {
            size: memory.peak_bytes
            for size, memory in Measurements.of(record_of(trials)).trusted_memory.items()
        }
        assert peaks == {8: 100, 32: 400, 64: 900}

    def test_the_higher_of_two_clean_readings_counts(self):
        trials = numbered(trial_of(8, peak=100), trial_of(8, peak=130, worker=1))
        assert Measurements.of(record_of(trials)).trusted_memory[8].peak_bytes == 130

    def test_search_and_confirmation_are_apart(self):
        record = record_of(numbered(*search_of(), confirm(32, 0.5)))
        assert Measurements.of(record).searched[32].step_s.median == 0.16
        assert [trial.batch_size for trial in Measurements.of(record).confirmations] == [32]

    def test_only_the_latest_series_counts(self):
        record = record_of(numbered(*search_of(), confirm(32, 0.5), confirm(64, 0.3, worker=2)))
        assert [trial.batch_size for trial in Measurements.of(record).confirmations] == [64]

    def test_pairs_cancel_drift(self):
        """The machine gets slower by 10 % a trial; the pairs lie on either side of the truth."""
        times = [0.16, 0.32 * 1.1, 0.16 * 1.21, 0.32 * 1.331]
        series = [confirm(size, time) for size, time in zip((32, 64) * 2, times, strict=True)]
        speeds = Measurements.of(record_of(numbered(*series))).speeds
        compared = speeds.compare(32, 64)
        assert compared.low < 1.0 < compared.high
        assert compared.median == pytest.approx(1.1, abs=0.01)  # the order cost one step of drift
        assert speeds.compare(32, 128) is None

    def test_pooled(self):
        spread = pooled([confirm(32, 0.1), confirm(32, 0.2), trial_of(32)], "step_s")
        assert spread.median == pytest.approx(0.15)
        assert (spread.low, spread.high) == pytest.approx((0.099, 0.202))
        assert spread.num_samples == 20
        assert pooled([trial_of(32)], "step_s") is None

    def test_a_trial_ran_only_with_its_own_size(self):
        assert trial_of(8, 0.1).ran
        assert not trial_of(8, 0.1, arrived_batch_size=7).ran
        assert not failure_of(8).ran
        assert isinstance(trial_of(8), Trial)
