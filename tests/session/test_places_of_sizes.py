"""When a run leaves the loader for the place of the size, and how it finds that again."""

import pytest
from batchadvisor.errors import UsageError
from batchadvisor.session.setup.options import RunOptions
from batchadvisor.session.workers.template_workers import (
    only_as_written,
    place_before,
    runs_only_as_written,
)
from msgspec.structs import replace

from ..end_to_end.driver import SCRIPTS
from ..on_paper import discovery_of, failure_of, loader_of, numbered, record_of, trial_of

OPTIONS = RunOptions(script=str(SCRIPTS / "constant_in_shapes.py"), device="cpu")


def refused(*sizes, outcome="exception", native=20):
    """The own size ran, and these did not."""
    trials = (trial_of(native, 0.1), *(failure_of(size, outcome) for size in sizes))
    return record_of(numbered(*trials), discovery=discovery_of(native=native))


def leaves(record, options=OPTIONS, *, is_last=False):
    return only_as_written(record, options, is_last=is_last) is not None


def test_a_multiple_of_its_own_and_another():
    assert leaves(refused(80, 40))
    assert leaves(refused(80, 10))
    place = only_as_written(refused(80, 40), OPTIONS, is_last=False).place
    assert (place.number, place.source.place.line) == (20, 7)


@pytest.mark.parametrize(
    "record",
    [
        refused(80),  # memory of another kind, a limit of a kernel
        refused(25, 30),  # it may want multiples of 20
        refused(80, 40, outcome="out_of_memory"),
        record_of(
            numbered(trial_of(20, 0.1), trial_of(40, 0.1), failure_of(80, "exception")),
            discovery=discovery_of(native=20),
        ),
    ],
    ids=["one", "no multiple", "memory", "another ran"],
)
def test_other_reasons(record):
    assert not leaves(record)


def test_one_is_enough_where_no_other_will_be_tried():
    assert leaves(refused(80), is_last=True)
    assert not leaves(refused(80, outcome="out_of_memory"), is_last=True)


def test_what_the_user_insists_on_stays():
    assert not leaves(refused(80, 40), replace(OPTIONS, loader=0))
    assert not leaves(refused(80, 40), replace(OPTIONS, door="template"))
    assert "only at its own batch size 20" in runs_only_as_written(refused(80), OPTIONS).what


def test_a_size_that_is_computed_has_no_place():
    assert not leaves(refused(80, 40), replace(OPTIONS, script=str(SCRIPTS / "rollouts.py")))


def test_a_resumed_run_goes_in_where_it_went_in_before():
    place = only_as_written(refused(80, 40), OPTIONS, is_last=False).place
    through = loader_of(2000, batch_size=20, source=place.source)
    record = record_of(discovery=discovery_of(native=20, loader=through, door="template"))
    assert place_before(record, OPTIONS) == place
    assert place_before(record, replace(OPTIONS, door="template")) is None
    assert place_before(refused(), OPTIONS) is None, "it was steered through its loader"
    elsewhere = replace(place.source, place=replace(place.source.place, line=9))
    moved = loader_of(2000, batch_size=20, source=elsewhere)
    record = record_of(discovery=discovery_of(native=20, loader=moved, door="template"))
    with pytest.raises(UsageError, match="not found any more"):
        place_before(record, OPTIONS)
