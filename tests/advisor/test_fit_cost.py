"""What a step for memory costs: what it took before, not the script's first cycle scaled up."""

import pytest
from batchadvisor.advisor.measured.measurements import Measurements
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
