"""Finalists with a process each: which live at once, and what their turns say."""

import msgspec
import pytest
from batchadvisor.advisor.measured.speeds import OF_A_CPU, speeds_of
from batchadvisor.advisor.search.next_trial import Done, next_trial
from batchadvisor.records import Distribution, Goal, StepQuality, Turns

from ..on_paper import CPU, GIB, discovery_of, numbered, record_of, trial_of

SEARCHED = ((8, 0.02), (64, 0.064), (128, 0.126))
"""Size and seconds of a step: 400, 1000 and 1016 samples/s. 64 is within the tolerance of 128."""


def record_with(*more, peak=GIB, **changes):
    """A search that is over, in one process for each size."""
    searched = [
        trial_of(size, step_s, peak=peak, worker=number)
        for number, (size, step_s) in enumerate(SEARCHED)
    ]
    given = {
        "discovery": discovery_of(native=8, door="template", setup_s=4.0),
        "device": msgspec.structs.replace(CPU, capacity_bytes=20 * GIB),
        "goal": Goal(budget_s=600, sizes=(8, 64, 128)),
        "search_s": 60.0,
    }
    return record_of(numbered(*searched, *more), **{**given, **changes})


def again(size, step_s, worker):
    return trial_of(size, step_s, peak=GIB, purpose="confirm", worker=worker)


AGAIN = tuple(again(*each, worker=3 + number) for number, each in enumerate(SEARCHED))


def turns(rows, sizes=(8, 64, 128), workers=(3, 4, 5)):
    return trial_of(
        max(sizes),
        kind="turns",
        purpose="confirm",
        worker=max(workers, default=5),
        samples_per_s=None,
        turns=Turns(sizes=sizes, step_s=tuple(rows), workers=workers),
    )


def test_each_is_timed_in_a_process_that_stays_then_all_take_turns():
    record, asked = record_with(), []
    for _ in range(3):
        request = next_trial(record)
        asked.append(request.batch_size)
        assert (request.kind, request.purpose, request.fresh_process) == ("timed", "confirm", True)
        assert {request.batch_size, *request.beside} == {8, 64, 128}
        worker = len(record.trials)
        trial = again(request.batch_size, dict(SEARCHED)[request.batch_size], worker)
        record = msgspec.structs.replace(record, trials=numbered(*record.trials, trial))
    assert asked == [64, 8, 128]  # the own size before the rival: its ratio is the answer
    request = next_trial(record)
    assert (request.kind, request.turns.sizes) == ("turns", (8, 64, 128))
    assert request.turns.num_rounds >= 4
    met = turns([(0.02, 0.064, 0.126)] * 6)
    record = msgspec.structs.replace(record, trials=numbered(*record.trials, met))
    assert isinstance(next_trial(record), Done) or next_trial(record).purpose == "tail"


@pytest.mark.parametrize(
    "changes",
    [
        {"device": msgspec.structs.replace(CPU, kind="cuda", capacity_bytes=20 * GIB)},
        {"peak": 8 * GIB},
        {"discovery": discovery_of(native=8)},
        {"distribution": Distribution(world_size=2, launcher="torchrun")},
    ],
    ids=["on a GPU", "too large together", "one process for all", "ranks"],
)
def test_where_they_cannot_live_at_once_none_stays(changes):
    """Two of 20 GiB fit in pairs: one of 8 GiB and the own one."""
    request = next_trial(record_with(**changes))
    assert request.purpose == "confirm" or request.kind == "turns"
    assert len(getattr(request, "beside", ())) <= (1 if "peak" in changes else 0)


def test_a_rival_that_there_is_no_time_for_is_left_out():
    """Of 64 s 20 are left: for the start of two processes of 6 s, and few rounds of short steps."""
    slow = discovery_of(native=8, door="template", setup_s=6.0)
    goal = Goal(budget_s=80, sizes=(8, 64, 128))
    record = record_with(*AGAIN[:2], discovery=slow, goal=goal, search_s=75.0)
    request = next_trial(record)
    assert (request.kind, request.turns.sizes) == ("turns", (8, 64))


def test_what_may_still_be_much_faster_meets_it_too():
    """Its windows alone differ by what the machine wandered between them."""
    unsure = trial_of(32, 0.032, peak=GIB, worker=9)
    spread = msgspec.structs.replace(unsure.samples_per_s, low=700.0, high=1500.0)
    unsure = msgspec.structs.replace(unsure, samples_per_s=spread)
    met = turns([(0.02, 0.064, 0.126)] * 6)
    goal = Goal(budget_s=600, sizes=(8, 32, 64, 128))
    record = record_with(unsure, *AGAIN, met, goal=goal)
    request = next_trial(record)
    assert (request.batch_size, request.purpose, request.fresh_process) == (32, "confirm", True)
    assert 8 in request.beside


def test_an_own_size_that_was_not_timed_is_not_waited_for():
    met = turns([(0.064, 0.126)] * 6, sizes=(64, 128), workers=(3, 4))
    record = record_with(*AGAIN[1:], met)
    others = tuple(trial for trial in record.trials if trial.batch_size != 8)
    record = msgspec.structs.replace(record, trials=numbered(*others))
    goal = Goal(budget_s=600, sizes=(64, 128))
    step = next_trial(msgspec.structs.replace(record, goal=goal))
    assert isinstance(step, Done) or step.purpose == "tail"


def test_processes_that_were_started_again_have_met_all_the_same():
    """Those of an earlier part of the run are gone, and the turns were of others."""
    met = turns([(0.02, 0.064, 0.126)] * 6, workers=(7, 8, 9))
    step = next_trial(record_with(*AGAIN, met))
    assert isinstance(step, Done) or step.purpose == "tail"


def test_processes_of_their_own_differ_by_more_than_sizes_in_one():
    """Where memory happens to lie makes one faster for all its life: turns do not show that."""
    rows = [(0.02, 0.064, 0.126), (0.021, 0.067, 0.132), (0.0195, 0.0625, 0.123)] * 2
    apart = speeds_of(numbered(turns(rows)), OF_A_CPU).compare(64, 8)
    one = speeds_of(numbered(turns(rows, workers=())), OF_A_CPU).compare(64, 8)
    assert apart.median == pytest.approx(one.median, rel=0.01)
    assert apart.high / apart.low > one.high / one.low


def test_a_record_with_another_number_of_processes_is_refused():
    with pytest.raises(ValueError, match="another number of processes"):
        Turns(sizes=(8, 64), step_s=((0.1, 0.2),), workers=(1,))


def test_beside_others_turns_come_before_windows():
    """A window there takes long and says nothing; turns beside the same others compare."""
    quality = StepQuality(num_steps=10, num_clean=0, num_disturbed=10, method="low quantile")
    searched = [
        trial_of(size, step_s, peak=GIB, worker=number, quality=quality)
        for number, (size, step_s) in enumerate(SEARCHED)
    ]
    record = msgspec.structs.replace(record_with(), trials=numbered(*searched))
    request = next_trial(record)
    assert (request.kind, request.turns.sizes) == ("turns", (8, 64))
    assert request.turns.most_s is not None, "a step may take fifty times as long"
    met = turns([(0.02, 0.064)] * 6, sizes=(8, 64), workers=(3, 4))
    record = msgspec.structs.replace(record, trials=numbered(*record.trials, met))
    assert next_trial(record).turns.sizes == (8, 64, 128)
    met = turns([(0.02, 0.064, 0.126)] * 6)
    record = msgspec.structs.replace(record, trials=numbered(*record.trials, met))
    assert isinstance(next_trial(record), Done) or next_trial(record).purpose == "tail"


def searching(*trials, setup_s=4.0, search_s=20.0, **changes):
    """A search that goes on, in one process for each size."""
    given = {
        "discovery": discovery_of(native=8, door="template", setup_s=setup_s, num_samples=10**6),
        "device": msgspec.structs.replace(CPU, capacity_bytes=20 * GIB),
        "goal": Goal(budget_s=120),
        "search_s": search_s,
    }
    return record_of(numbered(*trials), **{**given, **changes})


def in_search(rows, sizes, workers=(0, 1)):
    trial = turns(rows, sizes=sizes, workers=workers)
    return msgspec.structs.replace(trial, purpose="search")


class TestInTheSearch:
    def test_each_size_meets_the_own_one_whose_process_waits(self):
        own, larger = trial_of(8, 0.08, peak=GIB), trial_of(32, 0.3, peak=GIB, worker=1)
        first = next_trial(searching(own))
        assert (first.batch_size, first.kind, first.beside) == (32, "timed", (8,))
        met = next_trial(searching(own, larger))
        assert (met.kind, met.purpose, met.turns.sizes) == ("turns", "search", (8, 32))
        # By themselves x1.07, in turn x1.6: it pays to go on.
        rows = [(0.08, 0.2)] * 6
        grown = next_trial(searching(own, larger, in_search(rows, (8, 32)), setup_s=10.0))
        assert (grown.batch_size, grown.kind, grown.beside) == (128, "timed", (8,))

    def test_windows_that_others_held_up_are_not_made_again_first(self):
        """Each again needs a process more; the two that live have turns."""
        held_up = StepQuality(num_steps=6, num_clean=0, num_disturbed=6, method="low quantile")
        own = trial_of(8, 0.08, peak=GIB, quality=held_up)
        larger = trial_of(32, 0.3, peak=GIB, worker=1, quality=held_up)
        request = next_trial(searching(own, larger))
        assert (request.kind, request.turns.sizes) == ("turns", (8, 32))

    def test_what_only_seems_to_pay_is_not_followed(self):
        """The machine was faster while the larger size ran."""
        own, larger = trial_of(8, 0.08, peak=GIB), trial_of(32, 0.2, peak=GIB, worker=1)
        rows = [(0.08, 0.31)] * 6
        request = next_trial(searching(own, larger, in_search(rows, (8, 32)), setup_s=10.0))
        assert isinstance(request, Done) or request.batch_size <= 32

    @pytest.mark.parametrize(("gained", "size"), [(2.7, 128), (1.1, 32)])
    def test_a_step_up_after_one_that_gained_much_comes_before_a_confirmation(self, gained, size):
        """A process takes 24 s to its loop, and 40 s are left."""
        step_s = 4 * 0.08 / gained
        trials = (
            trial_of(8, 0.08, peak=GIB),
            trial_of(32, step_s, peak=GIB, worker=1),
            in_search([(0.08, step_s)] * 6, (8, 32)),
        )
        request = next_trial(searching(*trials, setup_s=24.0, search_s=80.0))
        assert request.batch_size == size
        assert (request.purpose == "search") is (size == 128)

    @pytest.mark.parametrize(
        "changes",
        [
            {"device": msgspec.structs.replace(CPU, kind="cuda", capacity_bytes=20 * GIB)},
            {"device": msgspec.structs.replace(CPU, capacity_bytes=4 * GIB)},
            {"goal": Goal(kind="memory", budget_s=120)},
            {"discovery": discovery_of(native=8)},
            {"distribution": Distribution(world_size=2, launcher="torchrun")},
        ],
        ids=["on a GPU", "too large to wait", "for memory", "one process for all", "ranks"],
    )
    def test_where_none_waits(self, changes):
        own = trial_of(8, 0.08, peak=GIB)
        assert getattr(next_trial(searching(own, **changes)), "beside", ()) == ()

    def test_starts_are_as_long_as_they_were(self):
        """The first took 7 s, those beside a process that waits take 11: what is left is kept for
        three of these and their turns."""
        trials = (
            trial_of(8, 0.08, peak=GIB, elapsed_s=3.0, ended_s=18.0),
            trial_of(32, 0.29, peak=GIB, worker=1, elapsed_s=6.0, ended_s=35.0),
            in_search([(0.08, 0.26)] * 6, (8, 32)),
            trial_of(16, 0.15, peak=GIB, worker=2, elapsed_s=4.0, ended_s=62.0),
            in_search([(0.08, 0.148)] * 6, (8, 16), (0, 2)),
        )
        request = next_trial(searching(*trials, setup_s=7.0, search_s=66.0))
        assert (request.purpose, request.fresh_process) == ("confirm", True)
