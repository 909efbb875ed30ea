"""The search under what a goal and a script ask for: sizes, bounds, the largest size, texts."""

import msgspec
import pytest
from batchadvisor.advisor.search.next_trial import expected, next_trial
from batchadvisor.records import Goal, NormLayers

from ..on_paper import GIB, discovery_of, loader_of, numbered, record_of, trial_of
from .machine import Machine
from .random_machines import laws_hold, random_machine
from .texts import TextMachine


def asked_for(result):
    return {request.batch_size for request in result.requests if request.purpose != "tail"}


class TestGoals:
    def test_sizes_are_tried_exactly(self):
        result = Machine().search(Goal(sizes=(48, 7, 48, 100)))
        assert result.tried == [7, 48, 100]
        assert result.size in (7, 48, 100)
        assert result.stop.reason == "all sizes of --sizes were tried"

    @pytest.mark.parametrize(
        ("sizes", "tried", "chosen"), [((4, 16, 64), [4, 16], 4), ((16, 64), [16], None)]
    )
    def test_sizes_above_one_that_failed_are_left_out(self, sizes, tried, chosen):
        result = Machine(memory=lambda size: 10 * GIB * size).search(Goal(sizes=sizes))
        assert (result.tried, result.size) == (tried, chosen)

    def test_sizes_above_the_data_are_said_to_be_so(self):
        loader = loader_of(4001, batch_size=16)
        discovery = discovery_of(native=16, loader=loader)
        result = Machine(memory=lambda _: GIB, discovery=discovery).search(Goal(sizes=(5000, 6000)))
        assert result.size is None
        assert result.advice.reason.startswith("The dataset has 4001 samples")
        assert "a batch of 5000 or more" in result.advice.reason

    @pytest.mark.parametrize(("native", "micro"), [(16, 4), (12, 1), (7, 1), (60, 2)])
    def test_keep_effective_batch_tries_divisors(self, native, micro):
        whole = native * micro
        for seed in range(5):
            machine = random_machine(seed)
            machine.discovery = discovery_of(native=native, micro_batches=micro)
            for kind in ("knee", "throughput", "memory"):
                result = machine.search(Goal(kind=kind, keep_effective_batch=True))
                assert [size for size in asked_for(result) if whole % size] == []
                assert result.finished
                if result.size is not None:
                    assert result.advice.training.effective_after == whole

    @pytest.mark.parametrize("bound", [{"max_batch": 10}, {"start": 10}])
    @pytest.mark.parametrize("kind", ["knee", "throughput", "memory"])
    def test_keep_effective_batch_within_a_bound_that_is_no_divisor(self, kind, bound):
        machine = Machine(discovery=discovery_of(native=16))
        result = machine.search(Goal(kind=kind, keep_effective_batch=True, **bound))
        top = bound.get("max_batch", 16)
        assert [size for size in asked_for(result) if 16 % size or size > top] == []
        assert result.finished
        assert result.advice.training.effective_after == 16

    @pytest.mark.parametrize("kind", ["knee", "memory"])
    def test_keep_effective_batch_of_a_script_whose_own_size_nobody_knows(self, kind):
        discovery = discovery_of(native=16, unavailable={"own_size": "it was not told"})
        result = Machine(discovery=discovery).search(Goal(kind=kind, keep_effective_batch=True))
        assert result.finished
        assert result.size is not None

    @pytest.mark.parametrize("native", [8, 64])
    @pytest.mark.parametrize("kind", ["knee", "throughput", "memory"])
    def test_a_run_that_goes_on_under_a_smaller_bound(self, kind, native):
        machine = Machine(discovery=discovery_of(native=native))
        before = machine.search(Goal(kind=kind))
        assert before.size > 24
        goal = Goal(kind=kind, max_batch=24, budget_s=1200)
        after = machine.goes_on(msgspec.structs.replace(before.record, goal=goal))
        assert after.finished
        assert max(asked_for(after)) == 24
        # 24 is slower than 64, which the script has already.
        assert after.size == (24 if native == 8 or kind == "memory" else 64)

    def test_start(self):
        assert Machine().search(Goal(start=20)).tried[0] == 20

    @pytest.mark.parametrize(
        ("discovery", "goal", "top"),
        [
            (discovery_of(native=32), Goal(max_batch=10), 10),
            (discovery_of(loader=loader_of(37, drop_last=True)), Goal(), 8),  # no larger epoch
            (
                discovery_of(loader=loader_of(37, drop_last=True)),
                Goal(kind="throughput", max_batch=99),
                37,
            ),
        ],
        ids=["max batch", "steps an epoch", "data"],
    )
    def test_no_size_above_a_bound(self, discovery, goal, top):
        result = Machine(discovery=discovery).search(goal)
        assert max(result.tried) == top
        assert result.size <= top

    def test_batch_norm_is_not_run_with_one_sample(self):
        discovery = discovery_of(native=8, norm_layers=NormLayers(batch_norm=2))
        result = Machine(time_s=lambda size: 0.001 * size, discovery=discovery).search()
        assert min(result.tried) == 2
        # The smallest size is as fast as any, yet 8 is the least for steady statistics.
        assert result.size == 8

    def test_profile_is_asked_for_in_the_search_alone(self):
        requests = Machine().search().requests
        assert {request.profile for request in requests if request.purpose == "search"} == {True}
        assert {request.profile for request in requests if request.purpose != "search"} == {False}
        requests = Machine().search(Goal(profile=False)).requests
        assert not any(request.profile for request in requests)

    def test_confirmation_runs_in_one_fresh_process_in_turn(self):
        result = Machine(noise=0.002).search()
        series = [request for request in result.requests if request.purpose == "confirm"]
        assert [request.fresh_process for request in series] == [True] + [False] * (len(series) - 1)
        sizes = [request.batch_size for request in series]
        assert sizes == [result.size, max(sizes)] * 2
        tail = result.requests[-1]
        assert (tail.purpose, tail.batch_size) == ("tail", 15625 % result.size)

    @pytest.mark.parametrize(
        ("norms", "iterable", "length", "asked"),
        [
            (NormLayers(batch_norm=1), True, None, 1),
            (NormLayers(layer_norm=1), True, None, None),
            (NormLayers(batch_norm=1), False, 16_000_000_000, None),
        ],
    )
    def test_one_sample_is_tried_where_batch_norm_could_meet_it(
        self, norms, iterable, length, asked
    ):
        loader = loader_of(length, iterable=iterable, batch_size=8)
        discovery = discovery_of(native=8, loader=loader, norm_layers=norms)
        requests = Machine(noise=0.0, discovery=discovery).search(Goal(sizes=(8, 64))).requests
        tails = [request.batch_size for request in requests if request.purpose == "tail"]
        assert tails == ([] if asked is None else [asked])

    def test_expected_steps(self):
        assert expected(record_of(goal=Goal(sizes=(1, 2, 3)))).num_sizes == 3
        for kind in ("knee", "throughput", "memory"):
            goal = Goal(kind=kind, budget_s=1e9)
            steps = expected(record_of(goal=goal)).num_steps
            requests = Machine().search(goal).requests
            real = sum(3 if request.kind == "fit" else 14 for request in requests)
            assert real / 4 <= steps <= real * 4

    def test_long_steps_are_said_before_the_search(self):
        """Steps of 15 s: a window of four takes a minute, a larger size's may take longer."""
        discovery = discovery_of(native_step_s=15.0)
        plan = expected(record_of(goal=Goal(budget_s=200.0), discovery=discovery))
        assert (plan.window_s, plan.least, plan.num_sizes, plan.fits) == (60.0, 1, 2, False)
        assert plan.enough_s is None
        plan = expected(record_of(goal=Goal(budget_s=100.0), discovery=discovery))
        assert (plan.num_sizes, plan.enough_s) == (1, 250.0)

    def test_the_own_size_comes_first_and_a_much_larger_one_then(self):
        machine = Machine(time_s=lambda size: 6 + 0.05 * size, discovery=discovery_of(native=64))
        result = machine.search(Goal(budget_s=200))
        assert result.tried[0] == 64
        assert result.requests[0].min_timed_steps == 3
        assert not result.requests[0].profile
        assert Machine(discovery=discovery_of(native=64)).search().tried[:3] == [64, 256, 8]

    @pytest.mark.parametrize(("worst_case", "num"), [(False, 1), (True, 3)])
    def test_no_step_of_the_longest_samples_is_timed(self, worst_case, num):
        machine = Machine(time_s=lambda size: 6 + 0.05 * size, discovery=discovery_of(native=64))
        (first, *_) = machine.search(Goal(budget_s=200, worst_case=worst_case)).requests
        assert (first.min_warmup_steps, first.min_timed_steps) == (num, 3)


LARGEST = Goal(kind="memory", budget_s=1e9)


def search(num_samples=10**7, **laws):
    machine = Machine(discovery=discovery_of(num_samples=num_samples), **laws)
    result = machine.search(LARGEST)
    laws_hold(machine, result)
    return result


class TestMemoryGoal:
    @pytest.mark.parametrize("largest", [100, 700, 5000, 20000])
    @pytest.mark.parametrize("intercept", [0.10, 0.40, 0.75])
    def test_visible(self, largest, intercept):
        """No failure, and the answer close below what fits."""
        slope = (1 - intercept) / largest
        result = search(
            time_s=lambda size: 0.01 + 0.35 * size / largest,
            memory=lambda size: 80 * GIB * (intercept + slope * size),
        )
        fits = int((0.95 - intercept) / slope)
        assert result.num_refused == 0
        assert 0.92 * fits <= result.size <= fits
        assert len(result.tried) <= 6

    def test_a_fit_is_confirmed_by_a_fit(self):
        """Where nothing was timed there is no time to confirm; two steps show that it fits."""
        result = Machine().search(Goal(kind="memory"))
        assert {request.kind for request in result.requests} == {"fit"}
        assert result.advice.sureness == "confirmed"
        listed = Machine().search(Goal(kind="memory", sizes=(8, 16)))
        confirm = [request for request in listed.requests if request.purpose == "confirm"]
        assert [request.kind for request in confirm] == ["timed"]

    @pytest.mark.parametrize("largest", [100, 700, 5000, 20000])
    def test_blind(self, largest):
        """Where the peak tells nothing, failures bracket it."""
        result = search(
            time_s=lambda size: 0.01 + 0.35 * size / largest,
            memory=lambda size: 80 * GIB * size / largest,
            blind=True,
        )
        assert 0.92 * largest <= result.size <= largest
        assert result.num_refused <= 4

    def test_every_largest_size(self):
        """Wherever the limit lies, the answer ran, lies below it and is not far from it."""
        worst = 1.0
        for largest in [*range(1, 60), *range(60, 20_000, 397)]:
            result = search(
                memory=lambda size, n=largest: 80 * GIB * (0.1 + 0.85 * size / n), noise=0.0
            )
            assert result.size <= largest
            worst = min(worst, result.size / largest)
        assert worst >= 0.85

    def test_a_noisy_peak_at_the_limit_is_bracketed(self):
        """A reading above the target halves the distance; it does not go down step by step."""
        for seed in range(30):
            result = search(
                memory=lambda size: 80 * GIB * (0.55 + 0.00005 * size), memory_noise=0.01, seed=seed
            )
            assert len(result.tried) <= 14

    def test_hidden_limit_below_what_the_secant_says(self):
        """Failures where the readings promise room cost a process each: few, and halving."""
        result = search(
            memory=lambda size: 80 * GIB * (0.1 + 0.0001 * size), real_capacity=50 * GIB
        )
        assert result.num_refused <= 6
        assert 0.92 * 5250 <= result.size <= 5250

    def test_the_budget_ends_it(self):
        """What ran by then is confirmed."""
        result = Machine(setup_s=0.0).search(Goal(kind="memory", budget_s=1e-6))
        assert result.stop.reason == "the budget is spent" or result.advice.sureness == "confirmed"
        assert result.tried == [8]

    @pytest.mark.parametrize("unread", [None, 0])
    def test_no_readings_at_all(self, unread):
        """A backend without counters: refusals alone bracket the limit."""
        trial = trial_of(8, peak=unread)
        record = record_of(numbered(trial), goal=Goal(kind="memory"))
        assert next_trial(record).batch_size > 8

    def test_data_bound(self):
        assert search(num_samples=300, memory=lambda size: GIB).size == 300


SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
ENOUGH = 0.97


@pytest.mark.parametrize(
    ("batching", "own", "seed"),
    [
        *(
            (*kind, seed)
            for kind in (("padded", 8), ("padded", 64), ("grouped", 2), ("stream", 32))
            for seed in (1, 2)
        ),
        ("padded", 64, 4),  # 16 and 32 take turns, 1 to 8 do: no size of one meets the other
        ("grouped", 2, 4),  # the fresh process meets few of the longest batches
        ("grouped", 2, 5),  # 8 and 16 are told apart by the last rounds that the budget has
    ],
)
def test_texts_are_answered_near_the_best_real_tokens_per_second(batching, own, seed):
    machine = TextMachine(batching, own=own, seed=seed)
    result = machine.search(Goal(kind="throughput", budget_s=40))
    best = max(map(machine.real_rate, SIZES))
    assert machine.real_rate(result.size) >= ENOUGH * best
    assert machine.real_rate(own) < ENOUGH * best  # it had to change
    assert result.record.search_s < 41  # with the step in progress


def test_no_step_up_that_the_law_says_would_lose():
    result = TextMachine("padded", own=64).search(Goal(kind="throughput", budget_s=40))
    assert max(result.tried) == 64
    assert result.size < 64
    assert "pads less" in result.advice.reason
