"""Scripts that take some sizes only: multiples are found from crashes beside sizes that run."""

import re

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.measured.multiples import ANY, multiples_of
from batchadvisor.errors import UsageError
from batchadvisor.records import Goal
from batchadvisor.session.setup.options import check_against_script, check_goal

from ..on_paper import GIB, discovery_of, failure_of, numbered, record_of, trial_of
from .machine import Machine


def machine(takes, *, native=8, num_samples=10**6):
    """A script that turns sizes down."""
    return Machine(
        discovery=discovery_of(native=native, num_samples=num_samples),
        outcome=lambda request, worker: None if takes(request.batch_size) else "exception",
    )


def even(size):
    return size % 2 == 0


def group_of_four(size):
    """As a layer that compares the samples of groups of 4."""
    return size <= 4 or size % 4 == 0


def found(advice, rule):
    (finding,) = [finding for finding in advice.findings if finding.rule == rule]
    return finding


class TestNumbers:
    @pytest.mark.parametrize(
        ("ran", "refused", "step", "any_up_to"),
        [
            ({8, 12, 16}, {10}, 4, False),
            ({2, 8, 16}, {10}, 4, True),  # at most 4, or a multiple of 4
            ({2, 6, 8}, {5, 7}, 2, False),
            ({1, 8, 16}, {3}, 2, True),
            ({8, 16}, (), 1, False),
            ((), {3}, 1, False),
            ({8, 10, 16}, {10}, 1, False),  # it ran as well
        ],
    )
    def test_the_smallest_that_all_agree_with(self, ran, refused, step, any_up_to):
        known = multiples_of(ran, refused)
        assert (known.step, known.any_up_to) == (step, any_up_to)

    def test_a_crash_above_all_that_ran_is_told_from_a_bound(self):
        guess = multiples_of({4, 8}, {10})
        assert not guess.is_sure
        assert guess.nearest(12, 100) == 16  # a multiple of 8 answers all that 10 leaves open
        assert guess.sure == ANY
        assert multiples_of({4, 8}, {10, 16}) == ANY  # then it was one
        assert multiples_of({4, 8, 16}, {10}).is_sure
        assert multiples_of({4, 8}, {11}).nearest(11, 11) == 10  # no such multiple within the bound

    def test_what_divides_a_number(self):
        known = multiples_of({4, 16, 64, 256, 512}, {88, 144, 160, 192})
        assert known.divide == 512
        assert [known.takes(size) for size in (128, 96, 1024)] == [True, False, True]
        assert known.nearest(100, 512) == 128

    def test_asked_for_and_found_hold_together(self):
        assert multiples_of((), (), asked=6) == multiples_of({6}, {7}, asked=6)
        assert multiples_of({12, 24, 36}, {18}, asked=6).step == 12

    def test_memory_and_time_are_no_constraint(self):
        for outcome in ("out_of_memory", "hung", "no_step", "script_ended"):
            trials = numbered(trial_of(8, 0.1), trial_of(16, 0.1), failure_of(10, outcome))
            assert Measurements.of(record_of(trials)).multiples == ANY


class TestSearch:
    @pytest.mark.parametrize("native", [6, 8, 12, 64])
    @pytest.mark.parametrize("kind", ["knee", "throughput", "memory"])
    @pytest.mark.parametrize("takes", [even, group_of_four, lambda size: size % 8 == 0])
    def test_only_sizes_that_are_taken_are_recommended(self, takes, kind, native):
        if not takes(native):
            return
        result = machine(takes, native=native).search(Goal(kind=kind))
        assert result.finished
        assert takes(result.size)
        assert result.size > native
        assert result.advice.sureness == "confirmed"
        assert sum(not trial.ran for trial in result.record.trials) <= 3

    def test_the_constraint_is_said_with_what_showed_it(self):
        result = machine(even).search(Goal(sizes=(8, 9, 10, 12)))
        finding = found(result.advice, "size.multiples")
        assert "multiples of 2 only" in finding.message
        assert "8, 10 and 12 ran, 9 did not (exception on paper)" in finding.message
        assert not finding.remedy, "--multiple-of refuses 9 among the sizes that are asked for"
        assert "trial.exception" not in {each.rule for each in result.advice.findings}

    def test_a_crash_at_10_does_not_conclude_that_12_fails(self):
        """And the option that is proposed takes the finding away."""
        goal = Goal(max_batch=13)
        result = machine(group_of_four).search(goal)
        assert (result.size, result.advice.sureness) == (12, "confirmed")
        remedy = found(result.advice, "size.multiples").remedy
        (step,) = re.findall(r"--multiple-of (\d+) tries no others", remedy)
        asked = msgspec.structs.replace(goal, multiple_of=int(step))
        result = machine(group_of_four).search(asked)
        assert result.finished
        assert "size.multiples" not in {each.rule for each in result.advice.findings}

    @pytest.mark.parametrize("kind", ["knee", "memory"])
    def test_where_the_least_multiple_does_not_fit_no_other_size_is_tried(self, kind):
        small = Machine(discovery=discovery_of(native=64), capacity=2 * GIB)  # 50 samples fit
        result = small.search(Goal(kind=kind, multiple_of=64))
        assert result.tried == [64]
        assert result.record.stop_reason == "nothing fits: batch 64 failed"

    def test_it_holds_for_the_last_batch_too(self):
        ran = [trial_of(size, 0.1 + size / 1000) for size in (2, 8, 16)]
        refused = failure_of(10, "exception")
        for num_samples, harmful in ((1012, False), (1014, True)):  # 4 and 6 are left
            free, bound = (
                record_of(numbered(*trials), discovery=discovery_of(8, num_samples))
                for trials in (ran, [*ran, refused])
            )
            assert not Measurements.of(free).harmful(8)
            assert Measurements.of(bound).harmful(8) is harmful
        finding = found(advise(bound), "tails.model.multiple")
        assert "the last batch has 6 samples" in finding.message
        assert "drop_last=True" in finding.remedy

    def test_sizes_above_all_that_run_are_turned_down(self):
        """As where a batch divides the samples of a step: the rest is confirmed all the same."""
        result = machine(lambda size: 4 % size == 0, native=4).search()
        assert result.size == 4
        assert result.finished
        assert "failed" not in result.stop.reason

    def test_what_divides_512(self):
        result = machine(lambda size: 512 % size == 0, native=4).search()
        assert 512 % result.size == 0
        assert result.size >= 64


@pytest.mark.parametrize(
    ("native", "num_samples", "goal"),
    [
        (100, 37, Goal(kind="memory", keep_effective_batch=True)),
        (64, 10**6, Goal(kind="memory", max_batch=64)),
    ],
)
def test_the_search_for_memory_tries_no_size_twice(native, num_samples, goal):
    """The divisor below the bound is odd; of one sample memory would hold no more."""
    script = machine(even, native=native, num_samples=num_samples)
    script.memory = lambda size: 79 * GIB + 10**8 * size if goal.max_batch else GIB
    result = script.search(goal)
    assert result.finished
    assert len(result.tried) == len(set(result.tried))


class TestAskedFor:
    @pytest.mark.parametrize("kind", ["knee", "throughput", "memory"])
    @pytest.mark.parametrize("step", [3, 4, 6, 16])
    def test_no_other_size_is_tried(self, step, kind):
        goal = Goal(kind=kind, multiple_of=step)
        result = machine(lambda size: size % step == 0, native=8).search(goal)
        assert result.tried
        assert all(size % step == 0 for size in result.tried)
        assert result.size % step == 0

    @pytest.mark.parametrize("kind", ["knee", "throughput"])
    def test_an_epoch_of_few_steps_is_no_reason_to(self, kind):
        small = Machine(discovery=discovery_of(native=7, num_samples=97))
        result = small.search(Goal(kind=kind, multiple_of=16))
        assert (result.size, {size % 16 for size in result.tried}) == (16, {0})

    @pytest.mark.parametrize(
        "goal",
        [
            Goal(multiple_of=4, sizes=(8, 10)),
            Goal(multiple_of=4, start=6),
            Goal(multiple_of=8, max_batch=7),
        ],
    )
    def test_contradictions(self, goal):
        with pytest.raises(UsageError, match="multiple"):
            check_goal(goal)

    @pytest.mark.parametrize("kind", ["knee", "throughput", "memory"])
    def test_of_the_divisors_of_a_kept_batch_only_multiples(self, kind):
        goal = Goal(kind=kind, multiple_of=4, keep_effective_batch=True)
        result = Machine(discovery=discovery_of(native=6, micro_batches=6)).search(goal)
        assert {size for size in result.tried if size % 4 or 36 % size} == set()
        assert result.size in (4, 12, 36)

    @pytest.mark.parametrize(
        ("goal", "said"),
        [
            (Goal(multiple_of=16, keep_effective_batch=True), "no divisor of 24 is a multiple of"),
            (Goal(multiple_of=64), "the data has 40 samples, less than the 64 of"),
        ],
    )
    def test_what_the_script_cannot_have(self, goal, said):
        found = discovery_of(native=12, num_samples=40, micro_batches=2)
        with pytest.raises(UsageError, match=said):
            check_against_script(record_of(goal=goal, discovery=found))
        within = msgspec.structs.replace(goal, multiple_of=8)
        check_against_script(record_of(goal=within, discovery=found))

    @pytest.mark.parametrize(
        "goal",
        [
            Goal(multiple_of=3),
            Goal(keep_effective_batch=True),
            Goal(sizes=(4, 6)),
            Goal(max_batch=6),
        ],
    )
    def test_of_an_earlier_part_of_a_run(self, goal):
        """A run goes on under other options: sizes that these leave out are not recommended."""
        steps = {4: 0.1, 6: 0.1, 12: 0.1, 16: 0.1, 32: 0.1}
        trials = numbered(*(trial_of(size, step_s) for size, step_s in steps.items()))
        found = discovery_of(native=6, micro_batches=2)
        before = record_of(trials, goal=Goal(kind="throughput"), discovery=found)
        assert advise(before).recommended.batch_size == 32
        goal = msgspec.structs.replace(goal, kind="throughput")
        after = advise(record_of(trials, goal=goal, discovery=found))
        assert after.recommended.batch_size == (6 if goal.sizes or goal.max_batch else 12)
