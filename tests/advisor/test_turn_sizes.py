"""Which sizes may take turns where steps are long and data workers hand over the batches."""

from types import MappingProxyType

import pytest
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.measured.turn_sizes import (
    MAX_WORKERS_WARMUP_STEPS,
    MIN_ROUNDS,
    OWN_COMPARISON_SHARE,
    field,
    filled_after,
    long_pair,
    warmup_steps,
)
from batchadvisor.advisor.search.confirmation import next_confirmation
from batchadvisor.advisor.search.cost import Budget
from batchadvisor.advisor.search.turns_plan import next_comparison
from batchadvisor.records import Goal, Turns

from ..on_paper import CPU, discovery_of, loader_of, numbered, record_of, trial_of

BUDGET_S = 120.0


def measured(*trials, num_workers=4):
    loader = loader_of(100_000, batch_size=8, num_workers=num_workers)
    discovery = discovery_of(native=8, loader=loader)
    goal = Goal(budget_s=BUDGET_S)
    return Measurements.of(record_of(numbered(*trials), discovery=discovery, goal=goal, device=CPU))


def windows(filled=1, **steps):
    """Timed windows, the first one of the script's own size, which changes nothing."""
    return [
        trial_of(int(size[1:]), step_s, filled_after=filled if number else None)
        for number, (size, step_s) in enumerate(steps.items())
    ]


class TestFilled:
    def test_the_most_steps_that_a_change_took(self):
        run = measured(
            trial_of(8, 0.4),
            trial_of(32, 1.6, filled_after=1),
            trial_of(16, 0.8, filled_after=3),
        )
        assert filled_after(run) == warmup_steps(run) == 3

    @pytest.mark.parametrize(
        "trials",
        [
            [trial_of(8, 0.4, filled_after=1)],  # the size that the loader had before
            [trial_of(8, 0.4), trial_of(32, 1.6, filled_after=1), trial_of(16, 0.8)],
        ],
        ids=["no change", "one that did not fill"],
    )
    def test_nothing_tells(self, trials):
        run = measured(*trials)
        assert filled_after(run) is None
        assert warmup_steps(run) == MAX_WORKERS_WARMUP_STEPS

    def test_a_size_far_below_the_best_says_nothing(self):
        """Its steps may wait for the loader, which those of the others do not."""
        run = measured(trial_of(8, 0.4), trial_of(32, 1.6, filled_after=1), trial_of(1, 0.4))
        assert filled_after(run) == 1


class TestLongSteps:
    STEPS = MappingProxyType({"b8": 0.43, "b32": 1.7})

    def test_they_take_turns_with_the_own_size_where_the_loader_keeps_up(self):
        run = measured(*windows(**self.STEPS))
        assert list(field(run)) == [8]
        assert long_pair(run) == {8: 0.43, 32: 1.7}
        assert long_pair(measured(*windows(None, **self.STEPS))) == {}

    def test_the_fastest_of_the_larger_ones(self):
        steps = {"b8": 0.6, "b16": 0.8, "b24": 1.2, "b32": 1.65}
        run = measured(*windows(**steps))
        assert list(long_pair(run)) == [8, 16]
        assert next_comparison(run).turns.sizes == (8, 16)
        short = measured(*windows(**{**steps, "b12": 0.7}))
        assert list(field(short)) == [8, 12], "a larger one that is short enough"
        assert long_pair(short) == {}

    def test_so_long_at_most(self):
        pair_s = OWN_COMPARISON_SHARE * BUDGET_S / MIN_ROUNDS / 2
        assert long_pair(measured(*windows(b8=0.9, b32=pair_s - 0.91)))
        assert not long_pair(measured(*windows(b8=0.9, b32=pair_s - 0.89)))

    def test_one_step_of_each_is_a_turn_once(self):
        trials = windows(**self.STEPS)
        asked = next_comparison(measured(*trials))
        assert (asked.turns.sizes, asked.turns.num_steps) == ((8, 32), (1, 1))
        assert asked.turns.num_warmup_steps == 1
        turns = Turns(sizes=(8, 32), step_s=((0.43, 1.7),) * 4)
        assert next_comparison(measured(*trials, trial_of(32, kind="turns", turns=turns))) is None

    @pytest.mark.parametrize(("long_s", "again"), [(1.7, True), (1.2, False)])
    def test_once_more_in_the_fresh_process_where_it_is_open_which_is_faster(self, long_s, again):
        """A public GPT on two cores: 256 was x1.00 to x1.16 as fast as its own 64, and 30 s of the
        budget were left."""
        steps = {"b8": 0.43, "b32": long_s}
        rows = ((0.45, 1.04 * long_s), (0.43, long_s), (0.41, 0.97 * long_s))
        met = trial_of(32, kind="turns", turns=Turns(sizes=(8, 32), step_s=rows))
        fresh = {"worker": 1, "purpose": "confirm"}
        trials = [*windows(**steps), met, trial_of(32, long_s, filled_after=1, **fresh)]

        def asked():
            run = measured(*trials)
            return next_confirmation(run, Budget(run))

        own = asked()
        assert (own.batch_size, own.kind, own.fresh_process) == (8, "timed", False)
        trials.append(trial_of(8, 0.43, filled_after=1, **fresh))
        turns = asked()
        assert (turns.kind == "turns") == again
        if again:
            assert (turns.turns.sizes, turns.purpose) == ((8, 32), "confirm")
            trials.append(trial_of(32, kind="turns", turns=met.turns, **fresh))
            assert getattr(asked(), "kind", "") != "turns"

    def test_one_that_surely_loses_takes_none(self):
        assert next_comparison(measured(*windows(b8=0.43, b32=1.8 * 1.4))) is None
        assert next_comparison(measured(*windows(b8=0.3, b24=1.5))) is None

    def test_in_bursts_where_it_does_not_keep_up(self):
        short = next_comparison(measured(*windows(None, b8=0.01, b32=0.03))).turns
        assert short.num_steps == (20, 8)
        assert short.num_warmup_steps == MAX_WORKERS_WARMUP_STEPS
