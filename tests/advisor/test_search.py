"""The search on machines on paper: what it may never do, and how well it does."""

import random

import msgspec
import pytest
from batchadvisor.advisor.facts import target_bytes
from batchadvisor.advisor.search import Done, expected_steps, next_trial
from batchadvisor.advisor.tail import has_harmful_tail
from batchadvisor.records import Goal, NormLayers

from .machine import (
    GIB,
    Machine,
    discovery_of,
    failure_of,
    loader_of,
    numbered,
    record_of,
    trial_of,
)

MANY_TRIALS = 22
"""No search takes more trials, confirmation and tail included."""


def random_machine(seed):
    """A machine with seeded laws: fixed cost, slope, a convex memory now and then."""
    rng = random.Random(seed)
    fixed_s = 10 ** rng.uniform(-4, -1)
    slope_s = 10 ** rng.uniform(-5, -2)
    floor_s = fixed_s * rng.choice([0, 0, 2, 5])
    capacity = rng.choice([8, 24, 80]) * GIB
    fixed_bytes = capacity * rng.uniform(0.02, 0.8)
    slope_bytes = capacity * 10 ** rng.uniform(-4.5, -2)
    bend = rng.choice([0.0, 0.0, 1e-4])
    return Machine(
        time_s=lambda size: max(floor_s, fixed_s + slope_s * size),
        memory=lambda size: fixed_bytes + slope_bytes * size * (1 + bend * size),
        capacity=capacity,
        noise=rng.choice([0.005, 0.02, 0.05]),
        memory_noise=0.01,
        seed=seed,
        discovery=discovery_of(
            native=rng.choice([1, 4, 8, 16, 32]), num_samples=rng.choice([997, 50_000, 10**6])
        ),
    )


def laws_hold(machine, result):
    """What holds for every search on every machine."""
    record = result.record
    assert result.finished, "the search does not end"
    assert len(record.trials) <= MANY_TRIALS
    ran = {one.batch_size for one in record.trials if one.ran and one.purpose != "tail"}
    assert result.size is None or result.size in ran
    assert (result.size is None) == (not ran & fitting(record))
    if result.size is not None:
        assert result.size in fitting(record)
        tops = [machine.discovery.primary.num_samples, record.goal.max_batch]
        assert result.size <= min(one for one in tops if one is not None)
    # What ran out of memory is not tried again, nor anything larger.
    refused = None
    for trial in record.trials:
        if trial.purpose == "search" and refused is not None:
            assert trial.batch_size < refused
        if trial.outcome == "out_of_memory":
            refused = min(trial.batch_size, refused or trial.batch_size)


def fitting(record):
    """Sizes that ran with every clean reading below the target, or at all without readings."""
    from batchadvisor.advisor.facts import trusted_memory

    limit = target_bytes(record)
    return {size for size, one in trusted_memory(record).items() if one.peak_bytes <= limit}


class TestRandomMachines:
    @pytest.mark.parametrize("kind", ["knee", "throughput", "memory"])
    def test_laws(self, kind):
        for seed in range(60):
            machine = random_machine(seed)
            laws_hold(machine, machine.search(Goal(kind=kind)))

    def test_laws_under_a_short_budget(self):
        for seed in range(40):
            machine = random_machine(seed)
            result = machine.search(Goal(budget_s=1.0))
            laws_hold(machine, result)
            # The first sizes and the confirmation run whatever the budget says.
            assert result.size is not None or machine.memory(1) > 0.9 * machine.capacity

    def test_laws_with_max_batch(self):
        for seed in range(40):
            machine = random_machine(seed)
            result = machine.search(Goal(max_batch=50))
            laws_hold(machine, result)
            assert max(one.batch_size for one in result.record.trials) <= 50

    def test_the_same_record_gives_the_same_answer(self):
        """Every prefix of a record asks for the trial that came next, however often it is asked."""
        for seed in range(12):
            result = random_machine(seed).search()
            record = result.record
            assert next_trial(record) == next_trial(record) == result.stop
            again = random_machine(seed).search()
            assert again.requests == result.requests
            assert again.advice == result.advice

    def test_a_resumed_run_ends_as_the_whole_one(self):
        """Only the record decides: through JSON and back after every trial, nothing changes."""
        machine = random_machine(3)
        whole = machine.search()
        for length in range(len(whole.record.trials)):
            part = machine.search(stop_after=length).record
            stored = msgspec.json.decode(msgspec.json.encode(part), type=type(part))
            assert next_trial(stored) == whole.requests[length]

    def test_knee_is_near_the_best(self):
        """On a quiet machine the answer reaches the tolerance and is not far above the knee."""
        for fixed_s, slope_s in ((0.0053, 0.0016), (0.002, 0.0001), (0.02, 0.00005)):
            machine = Machine(time_s=lambda size, a=fixed_s, b=slope_s: a + b * size, noise=0.005)
            result = machine.search(Goal(budget_s=1e9))
            ran = [one.batch_size for one in result.record.trials]

            def rate(size, a=fixed_s, b=slope_s):
                return size / (a + b * size)

            best = max(rate(size) for size in ran)
            assert rate(result.size) >= 0.93 * best
            knee = 0.95 * fixed_s / (fixed_s / max(ran) + 0.05 * slope_s)
            assert knee / 1.15 <= result.size <= 3 * knee
            assert result.advice.sureness == "confirmed"

    def test_throughput_goal_takes_the_fastest(self):
        machine = Machine(time_s=lambda size: 0.01 + 1e-6 * size**2, noise=0.002)
        result = machine.search(Goal(kind="throughput", budget_s=1e9))
        rates = {
            one.batch_size: one.batch_size / machine.time_s(one.batch_size)
            for one in result.record.trials
        }
        assert rates[result.size] >= 0.97 * max(rates.values())


class TestMemoryGoal:
    @pytest.mark.parametrize("largest", [100, 700, 5000, 20000])
    @pytest.mark.parametrize("intercept", [0.10, 0.40, 0.75])
    def test_visible(self, largest, intercept):
        """No failure, and the answer close below what fits."""
        capacity = 80 * GIB
        slope = capacity * (1 - intercept) / largest
        machine = Machine(
            time_s=lambda size: 0.01 + 0.35 * size / largest,
            memory=lambda size: capacity * intercept + slope * size,
            capacity=capacity,
            discovery=discovery_of(num_samples=10**7),
        )
        result = machine.search(Goal(kind="memory", budget_s=1e9))
        fits = int((capacity * 0.95 - capacity * intercept) / slope)
        assert result.num_refused == 0
        assert 0.92 * fits <= result.size <= fits
        assert len(result.tried) <= 6
        laws_hold(machine, result)

    def test_a_fit_is_confirmed_by_a_fit(self):
        """Where nothing was timed there is no time to confirm; two steps show that it fits."""
        result = Machine().search(Goal(kind="memory"))
        assert {one.kind for one in result.requests} == {"fit"}
        assert result.advice.sureness == "confirmed"
        listed = Machine().search(Goal(kind="memory", sizes=(8, 16)))
        assert [one.kind for one in listed.requests if one.purpose == "confirm"] == ["timed"]

    @pytest.mark.parametrize("largest", [100, 700, 5000, 20000])
    def test_blind(self, largest):
        """Where the peak tells nothing, failures bracket it."""
        machine = Machine(
            time_s=lambda size: 0.01 + 0.35 * size / largest,
            memory=lambda size: 80 * GIB * size / largest,
            blind=True,
            discovery=discovery_of(num_samples=10**7),
        )
        result = machine.search(Goal(kind="memory", budget_s=1e9))
        assert 0.92 * largest <= result.size <= largest
        assert result.num_refused <= 4
        laws_hold(machine, result)

    def test_every_largest_size(self):
        """Wherever the limit lies, the answer ran, lies below it and is not far from it."""
        worst = 1.0
        for largest in [*range(1, 60), *range(60, 20_000, 397)]:
            machine = Machine(
                memory=lambda size, n=largest: 80 * GIB * (0.1 + 0.85 * size / n),
                discovery=discovery_of(num_samples=10**7),
                noise=0.0,
            )
            result = machine.search(Goal(kind="memory", budget_s=1e9))
            laws_hold(machine, result)
            assert result.size <= largest
            worst = min(worst, result.size / largest)
        assert worst >= 0.85

    def test_a_noisy_peak_at_the_limit_is_bracketed(self):
        """A reading above the target halves the distance; it does not go down step by step."""
        machine = Machine(
            memory=lambda size: 80 * GIB * (0.55 + 0.00005 * size),
            memory_noise=0.01,
            discovery=discovery_of(num_samples=10**7),
        )
        for seed in range(30):
            machine.seed = seed
            result = machine.search(Goal(kind="memory", budget_s=1e9))
            assert result.finished
            assert len(result.tried) <= 14

    def test_hidden_limit_below_what_the_secant_says(self):
        """Failures where the readings promise room cost a process each: few, and halving."""
        machine = Machine(
            memory=lambda size: 80 * GIB * (0.1 + 0.0001 * size),
            real_capacity=50 * GIB,
            discovery=discovery_of(num_samples=10**7),
        )
        result = machine.search(Goal(kind="memory", budget_s=1e9))
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
        machine = Machine(memory=lambda size: GIB, discovery=discovery_of(num_samples=300))
        result = machine.search(Goal(kind="memory", budget_s=1e9))
        assert result.size == 300


class TestFailures:
    def test_nothing_fits(self):
        machine = Machine(memory=lambda size: 90 * GIB)
        result = machine.search()
        assert result.size is None
        assert result.stop.reason == "nothing fits: batch 1 failed"
        assert result.advice.sureness == "none"
        assert "Nothing fits within 80.00 GiB" in result.advice.reason
        assert result.tried[-1] == 1

    def test_own_size_does_not_fit(self):
        machine = Machine(memory=lambda size: 30 * GIB * size, discovery=discovery_of(native=16))
        result = machine.search()
        assert result.size in (1, 2)
        laws_hold(machine, result)

    def test_out_of_memory_in_the_confirmation(self):
        """A fresh process may need more; then a smaller size that is confirmed is taken."""
        for seed in range(10):
            machine = random_machine(seed)
            first = machine.search()
            machine.outcome = lambda request, worker, bad=first.size: (
                "out_of_memory"
                if request.purpose == "confirm" and request.batch_size >= bad
                else None
            )
            result = machine.search()
            assert result.finished
            assert len(result.record.trials) <= MANY_TRIALS
            assert result.size is None or result.size < first.size
            # A size that was refused is not started again and again.
            refused = [one.batch_size for one in result.record.trials if not one.ran]
            assert len(refused) == len(set(refused))

    def test_out_of_memory_in_the_confirmation_of_the_largest(self):
        machine = Machine(discovery=discovery_of(num_samples=10**7))
        first = machine.search(Goal(kind="memory"))
        machine.outcome = lambda request, worker: (
            "out_of_memory"
            if request.purpose == "confirm" and request.batch_size >= first.size
            else None
        )
        result = machine.search(Goal(kind="memory"))
        assert result.finished
        assert result.size < first.size
        assert result.advice.sureness == "confirmed"

    def test_memory_hidden_from_the_search(self):
        """Capacity is less than the device says: failures bound the sizes."""
        for seed in range(20):
            machine = random_machine(seed)
            machine.real_capacity = int(machine.capacity * 0.7)
            laws_hold(machine, machine.search())

    def test_script_ended(self):
        """The script is too short for another window: what was measured stands."""
        machine = Machine(
            outcome=lambda request, worker: "script_ended" if request.batch_size > 30 else None
        )
        result = machine.search()
        assert "too few for another window" in result.stop.reason
        assert result.record.trials[-1].outcome == "script_ended"
        assert result.size in {one.batch_size for one in result.record.trials if one.ran}
        assert result.advice.sureness == "measured once"

    @pytest.mark.parametrize("outcome", ["exception", "no_step", "wrong_size", "hung", "crashed"])
    def test_failures_above_a_size_bound_the_search(self, outcome):
        machine = Machine(
            outcome=lambda request, worker: outcome if request.batch_size > 100 else None
        )
        result = machine.search()
        assert result.finished
        assert result.size <= 100
        failures = [one for one in result.record.trials if one.outcome == outcome]
        assert 1 <= len(failures) <= 2
        assert f"trial.{outcome}" in {one.rule for one in result.advice.findings}

    @pytest.mark.parametrize("outcome", ["exception", "no_step", "wrong_size", "hung", "crashed"])
    def test_failures_at_every_size_end_the_search(self, outcome):
        machine = Machine(outcome=lambda request, worker: outcome)
        result = machine.search()
        assert len(result.record.trials) <= 2
        assert result.size is None
        assert "failed" in result.stop.reason

    @pytest.mark.parametrize("outcome", ["exception", "no_step"])
    def test_failures_below_the_own_size_leave_the_rest(self, outcome):
        """A script may need a certain size; BatchNorm refuses one sample."""
        machine = Machine(
            outcome=lambda request, worker: outcome if request.batch_size < 8 else None
        )
        result = machine.search()
        assert result.size is not None
        assert result.size >= 8
        assert max(result.tried) > 8

    def test_a_clean_size_above_is_taken_and_said(self):
        """152 leaves 25 samples; 192 leaves 129 and is within the tolerance."""
        discovery = discovery_of(native=8, num_samples=15681)
        result = Machine(noise=0.0, discovery=discovery).search()
        assert (15681 % 152, 15681 % result.size) == (25, 129)
        assert "Next to 152" in result.advice.reason
        assert "without its harmful last batch" in result.advice.reason

    def test_a_clean_size_below_is_tried_where_none_above_is_left(self):
        """88 leaves 33 samples, 96 too, 104 and 112 a single one: each less than half a batch."""
        discovery = discovery_of(native=8, num_samples=11649)
        machine = Machine(noise=0.0, discovery=discovery, time_s=lambda size: 0.005 + 0.0005 * size)
        result = machine.search(Goal(max_batch=128))
        (asked,) = (one for one in result.requests if one.reason.startswith("next to 88"))
        assert asked.batch_size == result.size == 80
        assert not has_harmful_tail(discovery, 80)
        assert has_harmful_tail(discovery, 88)

    def test_interrupted_trials_are_no_failures(self):
        record = record_of(
            numbered(trial_of(1, 0.1, peak=GIB), failure_of(8, "interrupted")), state="interrupted"
        )
        request = next_trial(record)
        assert request.batch_size == 8


class TestGoals:
    def test_sizes_are_tried_exactly(self):
        result = Machine().search(Goal(sizes=(48, 7, 48, 100)))
        assert result.tried == [7, 48, 100]
        assert result.size in (7, 48, 100)
        assert result.stop.reason == "all sizes of --sizes were tried"

    def test_sizes_above_one_that_failed_are_left_out(self):
        machine = Machine(memory=lambda size: 10 * GIB * size)
        result = machine.search(Goal(sizes=(4, 16, 64)))
        assert result.tried == [4, 16]
        assert result.size == 4

    def test_sizes_all_too_large(self):
        result = Machine(memory=lambda size: 10 * GIB * size).search(Goal(sizes=(16, 64)))
        assert result.size is None
        assert result.tried == [16]

    @pytest.mark.parametrize(("native", "micro"), [(16, 4), (12, 1), (7, 1), (60, 2)])
    def test_keep_effective_batch_tries_divisors(self, native, micro):
        whole = native * micro
        for seed in range(5):
            machine = random_machine(seed)
            machine.discovery = discovery_of(native=native, micro_batches=micro)
            for kind in ("knee", "throughput", "memory"):
                result = machine.search(Goal(kind=kind, keep_effective_batch=True))
                sizes = {one.batch_size for one in result.requests if one.purpose != "tail"}
                assert [one for one in sizes if whole % one] == []
                assert result.finished
                if result.size is not None:
                    assert result.advice.training.effective_after == whole

    def test_start(self):
        result = Machine().search(Goal(start=20))
        assert result.tried[0] == 20
        assert 8 not in result.tried[:1]

    def test_max_batch_below_the_own_size(self):
        result = Machine(discovery=discovery_of(native=32)).search(Goal(max_batch=10))
        assert max(result.tried) == 10
        assert result.size <= 10

    def test_small_data(self):
        """No size above the data, and none that makes no step under drop_last."""
        loader = loader_of(37, batch_size=8, drop_last=True)
        result = Machine(discovery=discovery_of(native=8, loader=loader)).search()
        assert max(result.tried) <= 37
        assert result.size <= 37

    def test_batch_norm_is_not_run_with_one_sample(self):
        discovery = discovery_of(native=8, norm_layers=NormLayers(batch_norm=2))
        machine = Machine(time_s=lambda size: 0.001 * size, discovery=discovery)
        result = machine.search()
        assert min(one.batch_size for one in result.requests if one.purpose == "search") == 2
        # The smallest size is as fast as any, yet 8 is the least for steady statistics.
        assert result.size == 8

    def test_profile_is_asked_for_in_the_search_alone(self):
        requests = Machine().search().requests
        assert {one.profile for one in requests if one.purpose == "search"} == {True}
        assert {one.profile for one in requests if one.purpose != "search"} == {False}
        assert not any(one.profile for one in Machine().search(Goal(profile=False)).requests)

    def test_confirmation_runs_in_one_fresh_process_in_turn(self):
        result = Machine(noise=0.002).search()
        series = [one for one in result.requests if one.purpose == "confirm"]
        assert [one.fresh_process for one in series] == [True] + [False] * (len(series) - 1)
        sizes = [one.batch_size for one in series]
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
        tails = [one.batch_size for one in requests if one.purpose == "tail"]
        assert tails == ([] if asked is None else [asked])

    def test_expected_steps(self):
        assert expected_steps(record_of(goal=Goal(sizes=(1, 2, 3))))[0] == 3
        for kind in ("knee", "throughput", "memory"):
            goal = Goal(kind=kind)
            _, steps = expected_steps(record_of(goal=goal))
            real = sum(
                3 if one.kind == "fit" else 14
                for one in Machine().search(msgspec.structs.replace(goal, budget_s=1e9)).requests
            )
            assert real / 4 <= steps <= real * 4

    def test_done_at_once_when_all_is_measured(self):
        result = Machine().search()
        assert isinstance(next_trial(result.record), Done)
