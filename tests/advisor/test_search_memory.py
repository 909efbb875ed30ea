"""The search for the largest size that fits."""

import pytest
from batchadvisor.advisor.search.next_trial import next_trial
from batchadvisor.records import Goal

from ..on_paper import GIB, discovery_of, numbered, record_of, trial_of
from .machine import Machine
from .random_machines import laws_hold


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
        assert {request.kind for request in result.requests} == {"fit"}
        assert result.advice.sureness == "confirmed"
        listed = Machine().search(Goal(kind="memory", sizes=(8, 16)))
        assert [request.kind for request in listed.requests if request.purpose == "confirm"] == [
            "timed"
        ]

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
