"""What a step for memory costs: what it took before, not the script's first cycle scaled up."""

import pytest
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.measured.script import script_of
from batchadvisor.advisor.search.cost import budget_of
from batchadvisor.advisor.search.next_trial import Done, next_trial
from batchadvisor.records import Goal

from ..on_paper import GIB, discovery_of, numbered, record_of, trial_of

SLOW_FIRST_CYCLE_S = 0.2  # of 8 samples: torch imports what it needs later


def searched(elapsed_s):
    trials = [trial_of(size, peak=GIB, elapsed_s=elapsed_s) for size in (8, 1000, 4000)]
    return record_of(
        numbered(*trials),
        goal=Goal(kind="memory", budget_s=30),
        discovery=discovery_of(num_samples=4000, native_step_s=SLOW_FIRST_CYCLE_S),
    )


def fit_s(record):
    request = next_trial(record)
    assert not isinstance(request, Done), request.reason
    assert (request.batch_size, request.purpose) == (4000, "confirm")
    return budget_of(Measurements.of(record)).trial_s(request)


def test_the_largest_size_is_confirmed_for_what_it_took():
    assert fit_s(searched(0.3)) == pytest.approx(0.3 + 4.0)  # and a fresh process


def test_without_a_time_of_its_own_the_script_s_step_is_scaled():
    assert next_trial(searched(0.0)) == Done("the largest allowed size fits")


def test_later_processes_may_start_sooner():
    """The first process of a run on an H100 took 11.6 s to its loop, the second one 2.5 s."""
    first = trial_of(8, elapsed_s=1.5, ended_s=14.0)
    second = trial_of(32, elapsed_s=2.0, ended_s=18.5, worker=1)
    same = trial_of(64, elapsed_s=2.0, ended_s=20.6, worker=1)
    found = discovery_of(setup_s=11.6)
    assert script_of(found).setup_s == 11.6
    assert script_of(found, (first,)).setup_s == 11.6
    assert script_of(found, (first, second, same)).setup_s == pytest.approx(2.5)
