"""Which size is chosen, how it is worded, and how sure it is."""

import re

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.search.confirmation import next_confirmation
from batchadvisor.advisor.search.cost import Budget
from batchadvisor.records import Goal, Turns

from ..on_paper import GIB, discovery_of, exactly, loader_of, numbered, record_of, trial_of
from .small_search import CONFIRMED, confirm, search_of


class TestChoice:
    def test_confirmed(self):
        advice = advise(record_of(numbered(*search_of(), *CONFIRMED)))
        assert advice.headline == "Use batch size 32: 200 samples/s ±1.0%, peak 1.03 GiB"
        assert advice.sureness == "confirmed"
        assert advice.recommended.trial == 6
        assert (advice.fastest.batch_size, advice.largest.batch_size) == (64, 64)
        assert advice.reason == (
            "The smallest size that reaches 95% of the best: 95.2% of the throughput of 64 "
            "(measured in turn, 94.3% to 96.2%). x2.50 the samples per second of the script's own "
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
            "x2.35 the samples per second of the script's own 8 (x1.25 to x4.42)."
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

    def test_few_readings_are_less_sure(self):
        once, twice = (
            advise(record_of(numbered(*search_of(), *CONFIRMED[:num]))).reason for num in (2, 4)
        )
        widths = []
        for said in (once, twice):
            low, high = re.search(r"measured in turn, ([\d.]+)% to ([\d.]+)%", said).groups()
            widths.append(float(high) - float(low))
        assert widths[0] > widths[1] > 0

    def test_finalists_take_turns_where_they_are_disturbed(self):
        """The third disturbed trial of a size counts; until then the other size goes between."""
        busy = {"doubts": ("other processes used the cores",)}
        trials = search_of()
        for expected in (32, 64) * 3:
            record = record_of(numbered(*trials))
            request = next_confirmation(Measurements.of(record), Budget(Measurements.of(record)))
            assert (request.batch_size, request.kind) == (expected, "timed")
            trials = [*trials, confirm(expected, {32: 0.16, 64: 0.3}[expected], **busy)]

    def test_one_comparison_against_it_leaves_it_open(self):
        """Half as fast as in the search: which of the two is right nobody knows."""
        series = (confirm(32, 0.32), confirm(64, 0.3048))
        advice = advise(record_of(numbered(*search_of(), *series)))
        assert (advice.standing, advice.considered) == ("too noisy", 32)
        assert advice.recommended.batch_size == 8

    def test_what_drift_may_do_is_said_to_be_noise(self):
        """On a CPU 93.5 % in both rounds is as near to 95 % as its drift is wide."""
        series = (confirm(32, 0.163), confirm(64, 0.3048), confirm(32, 0.163), confirm(64, 0.3048))
        record = record_of(numbered(*search_of(), *series))
        device = msgspec.structs.replace(record.device, kind="cpu")
        advice = advise(msgspec.structs.replace(record, device=device))
        assert advice.recommended.batch_size == 32
        assert advice.reason.startswith("By the search the smallest size that reaches 95%")
        assert "the noise does not tell whether that is less" in advice.reason

    def test_the_fastest_of_the_search_may_lose_in_the_fresh_process(self):
        """64 is twice as slow as 32 there, both times: its speed in the search was luck."""
        goal = Goal(kind="throughput")
        series = (confirm(64, 0.64), confirm(32, 0.16), confirm(64, 0.64), confirm(32, 0.16))
        advice = advise(record_of(numbered(*search_of(), *series), goal=goal))
        assert advice.recommended.batch_size == 32
        assert advice.reason.startswith(
            "Faster in the fresh process than the fastest of the search: 156.2% of the throughput "
            "of 64 (measured in turn, "
        )
        once = advise(record_of(numbered(*search_of(), *series[:2]), goal=goal))
        assert (once.standing, once.considered) == ("too noisy", 64)

    def test_one_round_in_turn_turns_nothing_down(self):
        """The fresh process ended after the first round of several."""
        for num_rounds, chosen in ((1, 64), (12, 32)):
            turns = Turns(sizes=(32, 64), step_s=((0.16, 0.34),) * num_rounds)
            compared = confirm(64, 0.34, kind="turns", turns=turns)
            series = (confirm(64, 0.3048), confirm(32, 0.16), compared)
            record = record_of(numbered(*search_of(), *series), goal=Goal(kind="throughput"))
            cpu = msgspec.structs.replace(record.device, kind="cpu")
            advice = advise(msgspec.structs.replace(record, device=cpu))
            assert advice.recommended.batch_size == chosen

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
        assert advice.headline == (
            "Keep batch size 8: 80 samples/s ±10%, too noisy to tell whether 12 is better "
            "(x0.76 to x1.63)"
        )
        assert advice.reason.startswith("The script keeps its own 8 until a measurement tells")
        assert "x0.76" not in advice.reason, "one set of figures"
        assert advice.change == "nothing to change"

    def test_the_own_size_is_called_no_best_where_all_is_noise(self):
        trials = [trial_of(size, 0.1, half_width=0.9) for size in (1, 8)]
        advice = advise(record_of(numbered(*trials)))
        assert advice.recommended.batch_size == 8
        assert (advice.standing, advice.considered) == ("too noisy", None)
        rate = "42\N{EN DASH}800 samples/s"
        told = f"Keep batch size 8: {rate}, too noisy to tell whether another is better"
        assert advice.headline == told
        assert advice.reason.startswith("The script keeps its own 8 until a measurement tells")
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
