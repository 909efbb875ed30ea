"""The answer around the choice: none at all, the line to change, laws and tails."""

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.choose.finalists import finalists
from batchadvisor.advisor.measured.measurements import Measurements
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
)

from ..on_paper import GIB, discovery_of, failure_of, loader_of, numbered, record_of, trial_of
from .decisions import of
from .small_search import confirm, search_of

HUNG = Fault(outcome="hung", detail="nothing was heard", worker=0)
NOTHING = {
    "Nothing fits within 80.00 GiB: batch 1 ran out of memory.": of(*map(failure_of, (8, 2, 1))),
    "Batch 8 failed: exception on paper": of(failure_of(8, "exception")),
    "Nothing fits": of(trial_of(8, peak=GIB), failure_of(8, purpose="confirm", worker=1)),
    "nothing was heard": of(faults=(HUNG,)),
    "Every size that ran takes more than 76.00 GiB (capacity less 5%): batch 1 took 77.60 GiB.": of(
        trial_of(1, peak=0.97 * 80 * GIB)
    ),
}


class TestNothing:
    @pytest.mark.parametrize("reason", NOTHING)
    def test_it_says_why(self, reason):
        advice = advise(NOTHING[reason])
        assert advice.headline == "No batch size can be recommended."
        assert advice.reason.startswith(reason)
        assert (advice.recommended, advice.sureness, advice.change) == (None, "none", "")
        assert advice.verdict.limit == "cannot tell"

    @pytest.mark.parametrize("kind", ["knee", "throughput", "energy"])
    def test_sizes_that_were_not_timed_fit_all_the_same(self, kind):
        fits = [trial_of(size, peak=size * GIB) for size in (8, 16, 64)]
        record = record_of(numbered(*fits, failure_of(80)), goal=Goal(kind="memory"))
        assert advise(record).recommended.batch_size == 64
        assert advise(record, Goal(kind=kind)).reason == (
            f"Sizes up to 64 ran and none of them was timed, which --goal {kind} needs. "
            "--goal memory does not."
        )

    def test_without_a_training_loop_or_a_device(self):
        record = record_of(stop_reason="interrupted by Ctrl-C")
        advice = advise(msgspec.structs.replace(record, discovery=None, device=None))
        assert advice.reason == "interrupted by Ctrl-C"
        assert (advice.training, advice.tail, advice.memory_law) == (None, None, None)
        assert set(advice.unavailable) == {"time_law", "memory_law"}


PLACE = SourceLine(file="conf.py", line=3)


def change_of(loader):
    """The text for a search that ends at 32; the script's own size is 8."""
    trials = numbered(*search_of({8: 0.1, 32: 0.16}))
    return advise(record_of(trials, discovery=discovery_of(loader=loader))).change


class TestChange:
    def test_without_source(self):
        assert change_of(loader_of()) == "train.py:7  batch_size=8 → 32"
        assert change_of(loader_of(place=None)) == "batch_size=8 → 32"

    @pytest.mark.parametrize(
        ("before", "template", "option", "text"),
        [
            ("batch_size=8", "", None, "batch_size=8  (8 → 32)"),
            ("batch_size=8", "batch_size={}", None, "batch_size=8 → batch_size=32"),
            ("cfg['{b}'] = 8", "cfg['{{b}}'] = {}", None, "cfg['{b}'] = 8 → cfg['{b}'] = 32"),
            ("bs = 8", "bs   = {}", None, "bs = 8 → bs = 32"),  # aligned with its neighbours
            ("default=8", "default={}", "--bs", "default=8 → default=32   (or {}--bs 32)"),
            ("--bs 8", "--bs {}", "--bs", "--bs 8 → --bs 32"),
            ("-b 8", "-b {}", "--bs", "-b 8 → -b 32"),
            ("bs: 8", "bs: {}", "a.bs=", "bs: 8 → bs: 32   (or {}a.bs=32)"),
        ],
    )
    def test_with_source(self, before, template, option, text):
        source = BatchSizeSource(place=PLACE, before=before, template=template, option=option)
        text = text.replace("{}", "on the command line: ")
        assert change_of(loader_of(source=source)) == f"conf.py:3  {text}"

    def test_on_the_command_line_alone(self):
        source = BatchSizeSource(place=None, before="a.bs=8", template="a.bs={}", option="a.bs=")
        assert change_of(loader_of(source=source)) == "on the command line: a.bs=8 → a.bs=32"

    def test_further_places(self):
        base, other = SourceLine(file="base.yaml", line=3), SourceLine(file="b.yaml", line=1)
        others = (OtherPlace(place=base, number=8), OtherPlace(place=other, number=4))
        source = BatchSizeSource(place=PLACE, before="bs: 8", template="bs: {}", others=others)
        assert change_of(loader_of(source=source)) == (
            "conf.py:3  bs: 8 → bs: 32; or base.yaml:3: the same number, and the one that is read "
            "last counts; also set at b.yaml:1 (4), not to the size in use"
        )

    def test_accumulation(self):
        steps = {4: 0.1, 8: 0.2, 2: 0.1}
        trials = [trial_of(size, step_s, micro_batches=2) for size, step_s in steps.items()]
        written = BatchSizeSource(place=PLACE, before="accum: 2", template="accum: {}")
        for found, where in ((None, ""), (written, ": conf.py:3  accum: 2 → accum: 4")):
            discovery = discovery_of(8, micro_batches=2, accumulation=found)
            goal = Goal(keep_effective_batch=True)
            advice = advise(record_of(numbered(*trials), discovery=discovery, goal=goal))
            text = "train.py:7  batch_size=8 → 4; accumulate over 4 micro-batches"
            assert advice.change == text + where
            assert advice.training.effective_after == 16

    def test_the_end_of_an_epoch_has_the_accumulation_that_is_kept(self):
        """1,000 samples, 8 in each of 4 micro-batches: 32 steps an epoch, and at 16 as many."""
        trials = [trial_of(8, 0.2, micro_batches=4), trial_of(16, 0.2, micro_batches=4)]
        discovery = discovery_of(8, num_samples=1000, micro_batches=4)
        for keep, steps in ((True, 32), (False, 16)):
            goal = Goal(keep_effective_batch=keep)
            advice = advise(record_of(numbered(*trials), discovery=discovery, goal=goal))
            assert advice.recommended.batch_size == 16
            assert advice.tail.steps_per_epoch == advice.training.steps_after == steps


class TestFacts:
    def test_laws_and_why_not(self):
        advice = advise(record_of(numbered(*search_of({8: 0.18, 16: 0.26, 64: 0.74}))))
        assert advice.time_law.fixed_s == pytest.approx(0.1)
        few = advise(record_of(numbered(trial_of(8, 0.1))))
        assert few.time_law is None
        assert "three timed sizes" in few.unavailable["time_law"]
        assert "three sizes" in few.unavailable["memory_law"]

    def test_a_check_of_another_length_says_nothing_about_the_last_batch(self):
        check = TailCheck(num_samples=9, outcome="ok", num_non_finite=1)
        record = record_of(numbered(*search_of(), trial_of(9, purpose="tail", tail=check)))
        advice = advise(record)
        assert (advice.tail.last_batch, advice.tail_check) == (9, check)
        assert advise(record, Goal(tolerance=0.7)).tail_check is None

    def test_the_tail_that_runs_is_that_of_the_recommended_size(self):
        """Noise keeps the script's own size, so it is the end of its epochs that must hold."""
        noisy = search_of({4: 0.2, 8: 0.1, 12: 0.135}, half_width=0.1)
        measurements = Measurements.of(record_of(numbered(*noisy), goal=Goal(kind="throughput")))
        assert advise(measurements.record).recommended.batch_size == 8
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
        trials = numbered(*(trial_of(size, 0.02 + 0.001 * size) for size in (8, 16, 32, 64)))
        advice = advise(record_of(trials))
        assert advice.tail.clean_sizes
        for clean in advice.tail.clean_sizes:
            predicted = clean.batch_size / (0.02 + 0.001 * clean.batch_size)
            assert clean.predicted_samples_per_s == pytest.approx(predicted, rel=1e-3)
        largest = advice.recommended.batch_size
        capped = advise(record_of(trials, goal=Goal(max_batch=largest)))
        assert any(near.batch_size > largest for near in advice.tail.clean_sizes)
        assert all(near.batch_size < largest for near in capped.tail.clean_sizes)

    def test_memory_after_a_larger_size_is_trusted_less(self):
        """And the higher of two clean readings counts."""
        trials = numbered(
            trial_of(8, peak=100),
            trial_of(64, peak=900),
            trial_of(8, peak=700),
            trial_of(32, peak=950),
            trial_of(32, peak=400, worker=1),
            trial_of(8, peak=130, worker=2),
        )
        trusted = Measurements.of(record_of(trials)).trusted_memory
        peaks = {size: memory.peak_bytes for size, memory in trusted.items()}
        assert peaks == {8: 130, 32: 400, 64: 900}

    def test_only_the_latest_series_confirms_what_was_searched(self):
        for series, confirmed in (
            ([confirm(32, 0.5)], [32]),
            ([confirm(32, 0.5), confirm(64, 0.3, worker=2)], [64]),
        ):
            measurements = Measurements.of(record_of(numbered(*search_of(), *series)))
            assert measurements.searched[32].step_s.median == 0.16
            assert [trial.batch_size for trial in measurements.confirmations] == confirmed

    def test_a_confirmation_that_was_held_up_throughout_hides_no_clean_window(self):
        """Its number would contradict the gain that is stated beside it."""
        held_up = trial_of(
            8, 4.0, purpose="confirm", worker=1, doubts=("60 of 60 steps were held up",)
        )
        for doubts, step_s in (((), 0.1), (("5 of 5 steps were held up",), 4.0)):
            trials = numbered(trial_of(8, 0.1, doubts=doubts), held_up)
            assert advise(record_of(trials)).recommended.step_s.median == step_s

    def test_pairs_cancel_drift(self):
        """The machine gets slower by 10 % a trial; the pairs lie on either side of the truth."""
        times = [0.16, 0.32 * 1.1, 0.16 * 1.21, 0.32 * 1.331]
        series = [confirm(size, time) for size, time in zip((32, 64) * 2, times, strict=True)]
        speeds = Measurements.of(record_of(numbered(*series))).speeds
        compared = speeds.compare(32, 64)
        assert compared.low < 1.0 < compared.high
        assert compared.median == pytest.approx(1.1, abs=0.01)  # the order cost one step of drift
        assert speeds.compare(32, 128) is None
