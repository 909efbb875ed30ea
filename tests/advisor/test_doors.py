"""What trials cost, and what the other doors change in the decisions and in what is said."""

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.measured.script import script_of
from batchadvisor.advisor.search.cost import Budget, end_s
from batchadvisor.advisor.search.next_trial import Done, next_trial
from batchadvisor.records import Goal, StepQuality, TrialRequest

from ..on_paper import GIB, discovery_of, loader_of, numbered, record_of, trial_of


def confirmed(door, **changes):
    """Two finalists in turn, each in a process of its own."""
    again = [
        trial_of(size, 0.01 * size**0.5, purpose="confirm", worker=2 + number)
        for number, size in enumerate((8, 32, 8, 32))
    ]
    trials = (trial_of(8, 0.03, worker=0), trial_of(32, 0.06, worker=1), *again)
    return record_of(
        numbered(*trials),
        discovery=discovery_of(native=8, door=door, **changes),
        goal=Goal(kind="throughput", sizes=(8, 32)),
    )


def budget_for(trial, **changes):
    return Budget(Measurements.of(record_of([trial], **changes)))


class TestConfirmation:
    def test_every_process_of_a_template_belongs_to_it(self):
        record = confirmed("template", loader=loader_of(6400))
        assert [run.batch_size for run in Measurements.of(record).confirmations] == [8, 32, 8, 32]
        assert isinstance(next_trial(record), Done)
        assert advise(record).recommended.batch_size == 32
        assert advise(record).sureness == "confirmed"

    def test_elsewhere_one_process_is_the_series(self):
        record = confirmed("loader", loader=loader_of(6400))
        assert [run.batch_size for run in Measurements.of(record).confirmations] == [32]


class TestCost:
    @pytest.mark.parametrize(("door", "setup_s"), [("template", 7.0), ("loader", 0.0)])
    def test_a_process_a_size(self, door, setup_s):
        budget = budget_for(trial_of(8, 0.1), discovery=discovery_of(door=door, setup_s=7.0))
        fresh, other = (
            budget.trial_s(TrialRequest(batch_size=8, kind="timed", fresh_process=is_fresh))
            for is_fresh in (True, False)
        )
        assert fresh - other == pytest.approx(7.0 - setup_s)

    @pytest.mark.parametrize(("search_s", "next_size"), [(8.0, 32), (12.5, None)])
    def test_a_second_size_comes_before_a_confirmation(self, search_s, next_size):
        """One process takes 4 s of 15: another is started where it ends in time, for nothing else
        tells whether a larger batch pays.
        """
        record = record_of(
            [trial_of(8, 0.01)],
            discovery=discovery_of(door="template", setup_s=4.0),
            goal=Goal(budget_s=15),
            search_s=search_s,
        )
        step = next_trial(record)
        assert getattr(step, "batch_size", None) == next_size
        if next_size is None:
            ended = msgspec.structs.replace(record, stop_reason=step.reason)
            assert advise(ended).recommended is None

    def test_a_pool_is_trained_on_before_the_size_changes(self):
        request = TrialRequest(batch_size=8, kind="timed")
        single, eight = (
            budget_for(trial_of(8, 0.1), discovery=discovery_of(pool=pool)).trial_s(request)
            for pool in (1, 8)
        )
        assert eight == pytest.approx(8 * single)

    def test_steps_that_stall_count_where_no_deadline_ends_them(self):
        """A timed trial ends at its deadline; the steps of a fit trial take what they take."""
        counted = {"num_steps": 20, "num_clean": 18, "num_disturbed": 2}
        before, after = (
            budget_for(trial_of(8, 0.1, quality=StepQuality(stalled_s=stalled_s, **counted)))
            for stalled_s in (0.0, 8.0)
        )
        fit, timed = (TrialRequest(batch_size=8, kind=kind) for kind in ("fit", "timed"))
        assert after.trial_s(fit) == pytest.approx(before.trial_s(fit) + 3 * 0.4)
        assert after.trial_s(timed) == before.trial_s(timed)

    def test_the_confirmation_leaves_time_for_its_process_to_end(self):
        last_s = budget_for(trial_of(8, 0.1), goal=Goal(budget_s=20)).last_s
        assert last_s == end_s(20) < 20

    def test_the_largest_size_is_confirmed_for_what_it_took(self):
        """Not for the script's first cycle scaled up: torch imports what it needs later."""
        for took_s, fits in ((0.3, True), (0.0, False)):
            trials = [trial_of(size, peak=GIB, elapsed_s=took_s) for size in (8, 1000, 4000)]
            record = record_of(
                numbered(*trials),
                goal=Goal(kind="memory", budget_s=30),
                discovery=discovery_of(num_samples=4000, native_step_s=0.2),
            )
            request = next_trial(record)
            if not fits:
                assert request == Done("the largest allowed size fits")
                continue
            assert (request.batch_size, request.purpose) == (4000, "confirm")
            cost_s = Budget(Measurements.of(record)).trial_s(request)
            assert cost_s == pytest.approx(0.3 + 4.0)  # and a fresh process

    def test_later_processes_may_start_sooner(self):
        """The first process of a run on an H100 took 11.6 s to its loop, the second one 2.5 s."""
        first = trial_of(8, elapsed_s=1.5, ended_s=14.0)
        second = trial_of(32, elapsed_s=2.0, ended_s=18.5, worker=1)
        same = trial_of(64, elapsed_s=2.0, ended_s=20.6, worker=1)
        found = discovery_of(setup_s=11.6)
        assert script_of(found, (first,)).setup_s == 11.6
        assert script_of(found, (first, second, same)).setup_s == pytest.approx(2.5)


class TestWords:
    @pytest.mark.parametrize(("proof", "fires"), [("asked", True), ("shape", False)])
    def test_a_size_that_nothing_shows(self, proof, fires):
        record = record_of([trial_of(8, 0.1, size_proof=proof)])
        rules = {finding.rule: finding for finding in advise(record).findings}
        assert ("door.as_asked" in rules) is fires
        if fires:
            assert "asked for" in rules["door.as_asked"].message

    def test_an_argument_that_no_line_sets(self):
        loader = loader_of(None, source=None, place=None)
        discovery = discovery_of(native=8, door="template", loader=loader)
        record = record_of([trial_of(8, 0.1), trial_of(64, 0.2)], discovery=discovery)
        assert advise(record).change == "the script's argument {batch_size} → 64"
