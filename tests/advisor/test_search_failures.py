"""The search where sizes run out of memory or fail some other way."""

import pytest
from batchadvisor.advisor.search.next_trial import next_trial
from batchadvisor.records import Goal

from ..on_paper import GIB, discovery_of, failure_of, numbered, record_of, trial_of
from .machine import Machine
from .random_machines import MANY_TRIALS, laws_hold, random_machine


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
            kept = result.advice.standing in ("too noisy", "worse")
            assert result.size is None or result.size < first.size or kept
            # A size that was refused is not started again and again.
            refused = [trial.batch_size for trial in result.record.trials if not trial.ran]
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
        assert result.size in {trial.batch_size for trial in result.record.trials if trial.ran}
        assert result.advice.sureness == "measured once"

    @pytest.mark.parametrize("outcome", ["exception", "no_step", "wrong_size", "hung", "crashed"])
    def test_failures_above_a_size_bound_the_search(self, outcome):
        machine = Machine(
            outcome=lambda request, worker: outcome if request.batch_size > 100 else None
        )
        result = machine.search()
        assert result.finished
        assert result.size <= 100
        failures = [trial for trial in result.record.trials if trial.outcome == outcome]
        assert 1 <= len(failures) <= 2
        assert f"trial.{outcome}" in {finding.rule for finding in result.advice.findings}

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

    def test_interrupted_trials_are_no_failures(self):
        record = record_of(
            numbered(trial_of(1, 0.1, peak=GIB), failure_of(8, "interrupted")), state="interrupted"
        )
        request = next_trial(record)
        assert request.batch_size == 8
