"""The answer: what is chosen, how it is worded, and how sure it is."""

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.confirm import next_confirmation, num_comparisons, ratio_to
from batchadvisor.advisor.cost import Budget
from batchadvisor.advisor.facts import confirmations, pooled, searched, trusted_memory
from batchadvisor.records import (
    BatchSizeSource,
    Fault,
    Goal,
    NormLayers,
    SourceLine,
    TailCheck,
    Trial,
    Turns,
)

from ..on_paper import (
    GIB,
    discovery_of,
    exactly,
    failure_of,
    loader_of,
    numbered,
    record_of,
    trial_of,
)
from .machine import Machine

# samples/s: 40, 80, 200, 210
STEPS = {4: 0.1, 8: 0.1, 32: 0.16, 64: 0.3048}


def search_of(steps=None, peak=lambda size: GIB + size * 10**6):
    return [trial_of(size, time, peak=peak(size)) for size, time in (steps or STEPS).items()]


def confirm(size, step_s, worker=1, **changes):
    rest = {"peak": GIB + size * 10**6, **changes}
    return trial_of(size, step_s, purpose="confirm", worker=worker, **rest)


CONFIRMED = (confirm(32, 0.16), confirm(64, 0.3048), confirm(32, 0.16), confirm(64, 0.3048))


class TestChoice:
    def test_confirmed(self):
        advice = advise(record_of(numbered(*search_of(), *CONFIRMED)))
        assert advice.headline == "Use batch size 32: 200 samples/s ±1.0%, peak 1.03 GiB"
        assert advice.sureness == "confirmed"
        assert advice.recommended.trial == 6
        assert (advice.fastest.batch_size, advice.largest.batch_size) == (64, 64)
        assert advice.reason == (
            "The smallest size that reaches 95% of the best: 95.3% of the throughput of 64 "
            "(measured in turn, 95.3% to 95.3%). x2.50 the samples per second of the script's own "
            "8 (x2.45 to x2.55)."
        )
        assert advice.recommended.epoch_s.median == pytest.approx(15625 / 200)

    def test_an_epoch_whose_samples_do_not_all_arrive(self):
        left = {"mean_arrived": 24.0}  # of 32
        turns = Turns(sizes=(8, 32), step_s=((0.1, 0.16),) * 9)
        trials = [
            *search_of(),
            trial_of(32, 0.16, samples_per_s=exactly(24 / 0.16), **left),
            trial_of(32, kind="turns", turns=turns),
        ]
        choice = advise(record_of(numbered(*trials[:2], *trials[4:]))).sizes[-1]
        assert choice.samples_per_s.median == pytest.approx(24 / 0.16, rel=0.01)
        assert choice.step_s.median == pytest.approx(0.16, rel=0.01)
        assert choice.epoch_s.median == pytest.approx(15625 / 32 * 0.16, rel=0.01)

    def test_steps_that_nobody_could_count(self):
        """What depends on their number is not known; the size and its times are."""
        unknown = {"optimizer_steps": "not as many for each"}
        discovery = discovery_of(micro_batches=3, unavailable=unknown)
        advice = advise(record_of(numbered(*search_of()), discovery=discovery))
        assert advice.recommended.batch_size == 32
        assert advice.training is None
        assert advice.unavailable["training"] == "not as many for each"
        assert advice.change.endswith("batch_size=8 → 32")

    @pytest.mark.parametrize(
        ("seen", "why"),
        [
            ((4, 4), None),
            ((None, None), None),
            ((4, 16), "optimizer steps on each batch: 16 at 32, 4 at 8"),
            ((4, 0), "batches of 32 had optimizer steps, and not as many for each"),
        ],
    )
    def test_steps_that_change_with_the_size(self, seen, why):
        """A script that cuts each batch into parts of eight makes more steps on a larger one."""
        trials = [
            trial_of(size, 0.1 + size / 1000, steps_per_batch=num)
            for size, num in zip((8, 32), seen, strict=True)
        ]
        discovery = discovery_of(steps_per_batch=4)
        advice = advise(record_of(numbered(*trials), discovery=discovery))
        assert advice.unavailable.get("training") == why
        assert (advice.training is None) is bool(why)
        assert advice.tail.steps_known is not bool(why)
        batches = -(-15625 // advice.recommended.batch_size)
        assert advice.tail.steps_per_epoch == batches * (1 if why else 4)

    @pytest.mark.parametrize(
        ("seen", "kind", "why"),
        [
            ((4, 4), "timed", None),
            ((4, None), "timed", None),
            ((4, 1), "turns", None),
            ((4, 1), "fit", None),
            ((4, 1), "timed", "batches of an optimizer step: 1 at 32, 4 at 8"),
        ],
    )
    def test_batches_of_a_step_that_change_with_the_size(self, seen, kind, why):
        """A script that steps on every 32 samples needs one batch of 32 for it."""
        trials = [
            trial_of(size, 0.1 + size / 1000, micro_batches=num, kind=kind)
            for size, num, kind in zip((8, 32), seen, ("timed", kind), strict=True)
        ]
        discovery = discovery_of(micro_batches=4)
        advice = advise(record_of(numbered(*trials), discovery=discovery))
        assert advice.unavailable.get("training") == why
        assert (advice.training is None) is bool(why)
        assert advice.tail.steps_known is not bool(why)

    def test_one_value_alone_has_no_interval(self):
        steps = {8: 0.1, 32: 0.17}
        trials = [trial_of(size, s, half_width=0.0, num_samples=1) for size, s in steps.items()]
        advice = advise(record_of(numbered(*trials)))
        assert advice.headline == "Use batch size 32: 190 samples/s"
        assert advice.reason.endswith(
            "x2.35 the samples per second of the script's own 8 (x1.57 to x3.53)."
        )
        assert advice.verdict.limit == "cannot tell"
        near = [
            trial_of(size, s, half_width=0.0, num_samples=1) for size, s in ((8, 0.1), (32, 0.37))
        ]
        advice = advise(record_of(numbered(*near)))
        assert (advice.standing, advice.recommended.batch_size) == ("too noisy", 8)

    def test_a_slow_loader_is_said_only_of_what_ran(self):
        """A larger batch is not ruled out where the sizes below gained by growing."""
        trials = numbered(trial_of(8, 1.0, wait_s=0.4), trial_of(32, 1.02, wait_s=0.4))
        advice = advise(record_of(trials, discovery=discovery_of(native=32)))
        assert "no batch size that ran is much faster" in advice.reason
        assert (advice.verdict.limit, advice.verdict.larger_batch) == ("input", "helps")

    def test_an_epoch_is_that_of_one_rank(self):
        sharded = loader_of(
            1000, sampler="BatchSamplerShard", dataset_samples=1000, even_batches=True
        )
        discovery = discovery_of(loader=sharded, num_ranks=4)
        advice = advise(record_of([trial_of(8, 0.1)], discovery=discovery))
        assert advice.recommended.epoch_s.median == pytest.approx(250 / 80)

    def test_measured_once_and_partial(self):
        record = record_of(numbered(*search_of()))
        assert advise(record).sureness == "measured once"
        interrupted = msgspec.structs.replace(record, state="interrupted")
        assert advise(interrupted).sureness == "partial"

    def test_the_confirmation_overrules_the_search(self):
        """In a fresh process 32 is 10 % slower than 64: the faster one is taken."""
        series = (confirm(32, 0.18), confirm(64, 0.3048), confirm(32, 0.18), confirm(64, 0.3048))
        advice = advise(record_of(numbered(*search_of(), *series)))
        assert advice.recommended.batch_size == 64
        assert "the fastest of the search" in advice.reason

    def test_one_comparison_is_called_one(self):
        advice = advise(record_of(numbered(*search_of(), *CONFIRMED[:2])))
        assert "95.3% of the throughput of 64 (one comparison)." in advice.reason

    def test_a_comparison_is_of_neighbours(self):
        """Each size was measured again for others' work, and they met once."""
        busy = {"doubts": ("other processes used the cores",)}
        series = [confirm(size, step_s, **busy) for size, step_s in ((32, 0.2), (64, 0.3))]
        record = record_of(numbered(*search_of(), *(one for one in series for _ in range(3))))
        assert num_comparisons(record, 32, 64) == 1
        assert "(one comparison): too few comparisons to tell" in advise(record).reason

    def test_finalists_take_turns_where_they_are_disturbed(self):
        """The third disturbed trial of a size counts; until then the other size goes between."""
        busy = {"doubts": ("other processes used the cores",)}
        trials = search_of()
        for expected in (32, 64) * 3:
            record = record_of(numbered(*trials))
            request = next_confirmation(record, Budget(record))
            assert (request.batch_size, request.kind) == (expected, "timed")
            trials = [*trials, confirm(expected, {32: 0.16, 64: 0.3}[expected], **busy)]

    def test_one_comparison_against_it_is_no_reason_for_it(self):
        """The budget allowed no second one, which might have turned the size down."""
        series = (confirm(32, 0.32), confirm(64, 0.3048))
        advice = advise(record_of(numbered(*search_of(), *series)))
        assert advice.recommended.batch_size == 32
        assert advice.reason.startswith(
            "By the search the smallest size that reaches 95% of the best. In the fresh process it "
            "reached 47.6% of the throughput of 64 (one comparison): too few comparisons to tell"
        )

    def test_what_drift_may_do_is_no_lack_of_comparisons(self):
        """On a CPU 93.5 % in both rounds is as near to 95 % as its drift is wide."""
        series = (confirm(32, 0.163), confirm(64, 0.3048), confirm(32, 0.163), confirm(64, 0.3048))
        record = record_of(numbered(*search_of(), *series))
        device = msgspec.structs.replace(record.device, kind="cpu")
        advice = advise(msgspec.structs.replace(record, device=device))
        assert advice.recommended.batch_size == 32
        assert advice.reason.startswith("By the search the smallest size that reaches 95%")
        assert "a drifting machine may move that by 3%" in advice.reason
        assert "too few comparisons" not in advice.reason

    def test_the_fastest_of_the_search_may_lose_in_the_fresh_process(self):
        """64 is twice as slow as 32 there, both times: its speed in the search was luck."""
        goal = Goal(kind="throughput")
        series = (confirm(64, 0.64), confirm(32, 0.16), confirm(64, 0.64), confirm(32, 0.16))
        advice = advise(record_of(numbered(*search_of(), *series), goal=goal))
        assert advice.recommended.batch_size == 32
        assert advice.reason.startswith(
            "Faster in the fresh process than the fastest of the search: 200.0% of the throughput "
            "of 64 (measured in turn, 200.0% to 200.0%)."
        )
        once = advise(record_of(numbered(*search_of(), *series[:2]), goal=goal))
        assert once.recommended.batch_size == 64

    def test_one_round_in_turn_turns_nothing_down(self):
        """The fresh process ended after the first round of several."""
        goal = Goal(kind="throughput")
        for rows, chosen, said in (
            (((0.16, 0.64),), 8, "The measurements do not tell whether 64 is better"),
            (((0.16, 0.64), (0.16, 0.64)), 32, "Faster in the fresh process than the fastest"),
        ):
            compared = confirm(64, 0.64, kind="turns", turns=Turns(sizes=(32, 64), step_s=rows))
            series = (confirm(64, 0.64), confirm(32, 0.16), compared)
            advice = advise(record_of(numbered(*search_of(), *series), goal=goal))
            assert advice.recommended.batch_size == chosen
            assert advice.reason.startswith(said)

    def test_a_size_over_the_margin_is_not_taken(self):
        """It ran, yet in the fresh process it left less than the margin free."""
        series = (confirm(32, 0.16, peak=0.96 * 80 * GIB), confirm(64, 0.3, peak=0.97 * 80 * GIB))
        advice = advise(record_of(numbered(*search_of(), *series)))
        assert advice.recommended.batch_size == 8
        assert advice.recommended.peak_bytes <= 0.95 * 80 * GIB

    def test_another_goal_of_the_same_record(self):
        record = record_of(numbered(*search_of()))
        assert advise(record).recommended.batch_size == 32
        assert advise(record, Goal(kind="throughput")).recommended.batch_size == 64
        assert advise(record, Goal(kind="memory")).recommended.batch_size == 64
        assert advise(record, Goal(tolerance=0.0)).recommended.batch_size == 64
        assert advise(record, Goal(tolerance=0.7)).recommended.batch_size == 8
        tight = Goal(kind="memory", margin=1 - (GIB + 40 * 10**6) / (80 * GIB))
        assert advise(record, tight).recommended.batch_size == 32
        assert advise(record, tight).goal == tight

    def test_clean_tail_comes_first_among_neighbours(self):
        """100 = 6 x 16 + 4 ends in a quarter of a batch, 5 x 20 in none."""
        steps = {4: 0.1, 16: 0.1, 20: 0.124}
        trials = numbered(*search_of(steps))
        for num_samples, size in ((100, 20), (96, 16)):
            record = record_of(trials, discovery=discovery_of(4, num_samples))
            assert advise(record).recommended.batch_size == size

    def test_native(self):
        advice = advise(record_of(numbered(*search_of({2: 0.1, 8: 0.1, 16: 0.25}))))
        assert advice.recommended.batch_size == advice.native.batch_size == 8
        assert advice.reason.endswith("This is the size the script has already.")
        assert advice.change == "nothing to change"

    def test_noise_shows_no_difference_to_the_own_size(self):
        steps = {4: 0.2, 8: 0.1, 12: 0.135}
        trials = [trial_of(size, time, half_width=0.1) for size, time in steps.items()]
        advice = advise(record_of(numbered(*trials), goal=Goal(kind="throughput")))
        assert advice.recommended.batch_size == 8
        assert (advice.standing, advice.considered) == ("too noisy", 12)
        assert advice.headline == "Keep batch size 8: too noisy to tell whether 12 is better"
        assert "do not tell whether 12 is better than the script's own 8" in advice.reason
        assert advice.change == "nothing to change"

    def test_the_own_size_is_called_no_best_where_all_is_noise(self):
        trials = [trial_of(size, 0.1, half_width=0.9) for size in (1, 8)]
        advice = advise(record_of(numbered(*trials)))
        assert advice.recommended.batch_size == 8
        assert (advice.standing, advice.considered) == ("too noisy", None)
        assert advice.headline == "Keep batch size 8: too noisy to tell whether another is better"
        assert "do not tell whether another size is better than the script's own 8" in advice.reason
        assert advice.change == "nothing to change"

    def test_where_all_others_are_surely_slower_that_is_known(self):
        own = trial_of(8, 0.1, half_width=0.9)
        fast = msgspec.structs.replace(own.samples_per_s, low=75.0, median=80.0, high=9000.0)
        own = msgspec.structs.replace(own, samples_per_s=fast)
        advice = advise(record_of(numbered(trial_of(1, 0.2), own)))
        assert (advice.recommended.batch_size, advice.standing) == (8, "own")

    def test_memory_goal(self):
        trials = [trial_of(size, peak=GIB * size) for size in (8, 32, 64)]
        advice = advise(record_of(numbered(*trials), goal=Goal(kind="memory")))
        assert advice.headline == "Use batch size 64: peak 64.00 GiB"
        assert advice.reason.startswith(
            "The largest size that ran and stays below 76.00 GiB (capacity less 5%)."
        )
        assert advice.recommended.samples_per_s is None


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

    def test_one_sample_speaks_where_the_end_is_unknown(self):
        check = TailCheck(num_samples=1, outcome="exception", detail="ValueError: one value")
        tail = trial_of(1, purpose="tail", outcome="exception", tail=check)
        discovery = discovery_of(
            loader=loader_of(None, iterable=True), norm_layers=NormLayers(batch_norm=1)
        )
        advice = advise(record_of(numbered(*search_of(), tail), discovery=discovery))
        assert (advice.tail, advice.tail_check) == (None, check)
        assert "batchadvisor tails --samples N" in advice.unavailable["tail"]
        (crash,) = (one for one in advice.findings if one.rule == "tail.crash")
        assert "how an epoch ends is unknown, and a step of 1 sample failed" in crash.message

    def test_sizes_near_by_stay_within_memory_and_carry_the_law(self):
        times = {size: 0.02 + 0.001 * size for size in (8, 16, 32, 64)}
        trials = numbered(*(trial_of(size, step) for size, step in times.items()))
        advice = advise(record_of(trials))
        assert advice.time_law is not None
        assert advice.tail.clean_sizes
        for one in advice.tail.clean_sizes:
            predicted = one.batch_size / (0.02 + 0.001 * one.batch_size)
            assert one.predicted_samples_per_s == pytest.approx(predicted, rel=1e-3)
        largest = advice.recommended.batch_size
        capped = advise(record_of(trials, goal=Goal(max_batch=largest)))
        assert any(one.batch_size > largest for one in advice.tail.clean_sizes)
        assert all(one.batch_size < largest for one in capped.tail.clean_sizes)

    def test_memory_after_a_larger_size_is_trusted_less(self):
        trials = numbered(
            trial_of(8, peak=100),
            trial_of(64, peak=900),
            trial_of(8, peak=700),
            trial_of(32, peak=950),
            trial_of(32, peak=400, worker=1),
        )
        peaks = {size: one.peak_bytes for size, one in trusted_memory(record_of(trials)).items()}
        assert peaks == {8: 100, 32: 400, 64: 900}

    def test_the_higher_of_two_clean_readings_counts(self):
        trials = numbered(trial_of(8, peak=100), trial_of(8, peak=130, worker=1))
        assert trusted_memory(record_of(trials))[8].peak_bytes == 130

    def test_search_and_confirmation_are_apart(self):
        record = record_of(numbered(*search_of(), confirm(32, 0.5)))
        assert searched(record)[32].step_s.median == 0.16
        assert [one.batch_size for one in confirmations(record)] == [32]

    def test_only_the_latest_series_counts(self):
        record = record_of(numbered(*search_of(), confirm(32, 0.5), confirm(64, 0.3, worker=2)))
        assert [one.batch_size for one in confirmations(record)] == [64]

    def test_pairs_cancel_drift(self):
        """The machine gets slower by 10 % a trial; the pairs lie on either side of the truth."""
        times = [0.16, 0.32 * 1.1, 0.16 * 1.21, 0.32 * 1.331]
        series = [confirm(size, time) for size, time in zip((32, 64) * 2, times, strict=True)]
        middle, low, high = ratio_to(record_of(numbered(*series)), 32, 64)
        assert low < 1.0 < high
        assert middle == pytest.approx(1.0, abs=0.05)
        assert ratio_to(record_of(numbered(*series)), 32, 128) is None

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
