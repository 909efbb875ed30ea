"""A search of which every step ran beside other programs: what it tries, and what it says."""

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.choose.finalists import disagreement, finalists
from batchadvisor.advisor.choose.knee import inside
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.search.clean_search import next_to_knee
from batchadvisor.advisor.search.cost import SHORTEST_PLAN, Budget
from batchadvisor.advisor.search.knee_search import next_size
from batchadvisor.advisor.search.turns_plan import LONG_TURN, TURN_OF_WORKERS_S
from batchadvisor.records import Cause, Goal, StepQuality, Turns
from batchadvisor.spread import inverse

from ..on_paper import CPU, discovery_of, exactly, loader_of, numbered, record_of, trial_of

CONTENDED = StepQuality(num_steps=20, num_clean=0, num_disturbed=20, method="low quantile")
LOAD = Cause(kind="processes", message="other programs used 1.5 of 2 cores (neighbour 1.5)")

WINDOWS = {64: 0.5, 512: 0.8, 1024: 1.55}
"""By these windows 512 is within the tolerance of 1024; by the turns below it is not."""


def timed(size, step_s, waited_s=0.0, *, clean=False, **changes):
    """A window of which each step waited for a core so long."""
    if clean:
        return trial_of(size, step_s, **changes)
    spread = msgspec.structs.replace(exactly(step_s, 0.01), low=step_s - waited_s - 0.001)
    changes = {"quality": CONTENDED, "causes": (LOAD,), "step_s": spread} | changes
    return msgspec.structs.replace(
        trial_of(size, step_s), samples_per_s=inverse(spread, size), **changes
    )


def in_turn(step_s, rounds=4):
    """Sizes in rounds, of which each step waited for most of its time."""
    row = tuple(step_s.values())
    turns = Turns(
        sizes=tuple(step_s),
        step_s=(row,) * rounds,
        lost_s=(tuple(0.7 * seconds for seconds in row),) * rounds,
    )
    return trial_of(max(step_s), kind="turns", turns=turns)


def measured(*trials, budget_s=120.0, num_workers=0, **changes):
    loader = loader_of(100_000, batch_size=64, num_workers=num_workers)
    discovery = discovery_of(native=64, loader=loader)
    return Measurements.of(
        record_of(
            numbered(*trials),
            discovery=discovery,
            goal=Goal(budget_s=budget_s),
            **{"device": CPU, **changes},
        )
    )


def following(measurements):
    return next_size(measurements, Budget(measurements))


class TestCost:
    def test_waiting_for_a_core_does_not_grow_with_the_size(self):
        waits, works = measured(timed(64, 1.0, 0.8)), measured(timed(64, 1.0, clean=True))
        assert Budget(works).step_s(256) == pytest.approx(4.0)
        assert Budget(waits).step_s(256) == pytest.approx(0.8 + 4 * 0.2, rel=0.01)

    def test_nothing_is_kept_for_a_confirmation(self):
        both = [timed(64, 0.5, 0.4), timed(256, 0.6, 0.5)]
        assert Budget(measured(*both)).reserve_s() == 0
        unable = measured(
            *both, device=msgspec.structs.replace(CPU, kind="cuda")
        )  # where nothing takes turns, it is all that tells more
        assert Budget(unable).reserve_s() > 0
        assert Budget(measured(both[0], timed(256, 0.6, clean=True))).reserve_s() > 0


class TestSearch:
    def test_a_window_is_short_where_turns_tell(self):
        request = following(measured(timed(64, 0.1, 0.08)))
        assert request.batch_size == 256
        assert (request.min_warmup_steps, request.min_timed_steps) == SHORTEST_PLAN[:2]
        assert not request.profile
        clean = following(measured(timed(64, 0.1, clean=True)))
        assert clean.min_timed_steps > request.min_timed_steps

    def test_a_larger_size_takes_turns_however_slow_its_window_was(self):
        """Its threads shared a core for that long."""
        slow = [timed(64, 0.01, 0.002), timed(256, 2.0, 1.0)]
        assert following(measured(*slow)).turns.sizes == (64, 256)

    def test_each_size_that_comes_takes_turns_while_there_is_time(self):
        searched = [
            timed(64, 1.0, 0.9),
            timed(256, 1.2, 1.1),
            in_turn({64: 1.0, 256: 1.2}),
            timed(1024, 1.2, 1.1),
        ]
        assert following(measured(*searched[:3])).batch_size == 1024
        assert following(measured(*searched)).turns.sizes == (256, 1024)
        spent = [*searched[:2], msgspec.structs.replace(searched[2], elapsed_s=60.0), searched[3]]
        assert following(measured(*spent)).turns is None

    def test_growth_ends_where_no_rule_says_how_to_train(self):
        """Beside others a step of any size takes as long: the largest would always be the best."""
        windows = timed(64, 0.5, 0.4), timed(1024, 0.5, 0.4)
        turns = in_turn({64: 0.5, 1024: 0.5})
        assert following(measured(*windows, turns)).batch_size == 64 * 32
        last = timed(2048, 0.5, 0.4), in_turn({1024: 0.5, 2048: 0.5})
        request = following(measured(*windows, turns, *last))
        assert getattr(request, "batch_size", 0) <= 2048

    def test_nothing_is_timed_again(self):
        """It would be beside others again; a smaller size tells little of the fixed cost."""
        doubted = [
            timed(size, seconds, 0.4, doubts=("held up",))
            for size, seconds in ((64, 0.5), (256, 0.6))
        ]
        request = following(measured(*doubted, in_turn({64: 0.5, 256: 0.6})))
        assert request.batch_size == 1024

    @pytest.mark.parametrize(
        ("num_workers", "wait_s", "clean", "num_warmup"),
        [
            (0, 0.0, False, 1),
            (2, 0.001, False, 1),  # a batch is always ready: the queue is full after a step
            (2, 0.1, False, 5),
            (2, 0.001, True, 5),
        ],
    )
    def test_a_queue_that_is_never_empty_needs_no_steps_to_fill(
        self, num_workers, wait_s, clean, num_warmup
    ):
        step_s = 0.1 if clean else 0.5
        windows = [
            timed(size, step_s, 0.4, clean=clean, input_wait_s=exactly(wait_s))
            for size in (64, 256)
        ]
        turns = following(measured(*windows, num_workers=num_workers)).turns
        assert turns.num_warmup_steps == num_warmup
        if num_workers:
            assert turns.most_s == (None if clean else LONG_TURN * TURN_OF_WORKERS_S)


class TestAnswer:
    def test_a_window_by_itself_is_not_put_before_what_took_turns(self):
        run = measured(
            timed(64, 0.5, 0.4),
            timed(256, 0.6, 0.5),
            in_turn({64: 0.5, 256: 0.6}),
            timed(1024, 0.6, 0.5),
        )
        advice = advise(run.record)
        assert advice.recommended.batch_size == 256
        assert "1024 took none, and may be faster" in advice.reason
        assert "1024 is faster" not in advice.reason

    def test_nor_one_between_them(self):
        """Close to the knee, and too long for turns in what is left."""
        windows = timed(64, 1.0, 0.9), timed(256, 1.2, 1.1)
        turns = msgspec.structs.replace(in_turn({64: 1.0, 256: 1.2}), elapsed_s=60.0)
        run = measured(*windows, turns, timed(180, 0.8, 0.7))
        assert advise(run.record).recommended.batch_size == 256

    @pytest.mark.parametrize(
        ("own", "other", "named"),
        [(False, False, True), (False, True, True), (True, False, True), (True, True, False)],
    )
    def test_it_names_the_load(self, own, other, named):
        """Also where a window of one was clean: what compares them are rounds beside others."""
        windows = timed(64, 0.5, 0.4, clean=own), timed(256, 0.6, 0.5, clean=other)
        record = measured(*windows, in_turn({64: 0.5, 256: 0.6})).record
        advice = advise(record)
        assert advice.recommended.batch_size == 256
        said = f"they may differ by less, or the other way round: {LOAD.message}."
        record = msgspec.structs.replace(record, variables={"A": "1"})
        assert ("beside others, with A=1; on" in advise(record).reason) is named
        assert (said in advice.reason) is ("beside others" in advice.reason) is named


def test_a_size_is_held_to_the_best_under_the_same_neighbours():
    """What steps lost to them was the same share at each size: no size may have lost it alone."""
    rates = {64: 420.0, 160: 590.0, 256: 670.0, 1024: 815.0, 2048: 840.0}
    step_s = {size: size / rate for size, rate in rates.items()}
    windows = [timed(size, seconds, 0.7 * seconds) for size, seconds in step_s.items()]
    run = measured(*windows, in_turn(step_s))
    assert rates[256] < 0.8 * rates[2048]
    assert inside(run, run.searched) == [1024, 2048]
    assert advise(run.record).recommended.batch_size == 1024
    # The table says how fast it would have been alone.
    assert run.best_timed[256].samples_per_s.high > rates[2048]


@pytest.mark.parametrize(("faster", "apart"), [(2.0, False), (5.0, True)])
def test_a_fresh_process_without_the_load_does_not_disagree(faster, apart):
    """Of seven tenths of its time a step may be free."""
    windows = timed(64, 0.5, 0.35), timed(256, 0.6, 0.42)
    again = timed(256, 0.6 / faster, clean=True, purpose="confirm")
    run = measured(*windows, in_turn({64: 0.5, 256: 0.6}), again)
    assert (disagreement(run, 256) is not None) is apart


def test_no_size_is_timed_alone_between_two_that_took_turns():
    """512 is turned down. One between would run in a window, which tells nothing beside others."""
    windows = [timed(size, seconds, 0.4) for size, seconds in WINDOWS.items()]
    turns = in_turn({64: 0.5, 512: 0.8, 1024: 1.48})
    assert finalists(measured(*windows, turns))[0] == 1024


@pytest.mark.parametrize(("step_s", "tried"), [(1.48, None), (1.6, 536)])
def test_no_clean_size_is_tried_next_to_one_that_turns_turned_down(step_s, tried):
    """Epochs of 512 end in a harmful short batch."""
    windows = [timed(size, seconds, 0.4) for size, seconds in WINDOWS.items()]
    request = next_to_knee(measured(*windows, in_turn({64: 0.5, 512: 0.8, 1024: step_s})))
    assert (None if request is None else request.batch_size) == tried


def test_steps_that_were_held_up_are_said_once():
    advice = advise(measured(timed(64, 0.5, 0.4), in_turn({64: 0.5, 256: 0.6})).record)
    held_up = [finding for finding in advice.findings if "held up" in finding.message]
    assert [finding.rule for finding in held_up] == ["steps.disturbed"]
    assert LOAD.message in held_up[0].message
