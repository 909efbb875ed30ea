"""Measurements: each fact computed once, and the same as when it is computed anew."""

from collections import Counter
from functools import cached_property

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.choose.decision import choose
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.measured.once import once
from batchadvisor.advisor.search.next_trial import next_trial
from batchadvisor.records import Goal

from ..on_paper import numbered, record_of, trial_of
from .contended import session_of
from .decisions import CONFIRMED, DOUBTED, RECORDS
from .random_machines import random_machine

FACTS = {
    name: fact for name, fact in vars(Measurements).items() if isinstance(fact, cached_property)
}
KEPT_BY_SIZE = {"_harmful", "_too_risky", "answers"}
"""These fill as they are asked."""


def test_each_fact_is_computed_once(monkeypatch):
    counts, alive = Counter(), []
    for name, fact in FACTS.items():

        def counting(measurements, name=name, compute=fact.func):
            alive.append(measurements)  # so that no other gets its id
            counts[id(measurements), name] += 1
            return compute(measurements)

        monkeypatch.setattr(fact, "func", counting)
    advise(DOUBTED)
    next_trial(DOUBTED)
    assert {name for _, name in counts} >= {"best_timed", "searched", "confirmations", "ran"}
    assert set(counts.values()) == {1}


def every_record():
    yield from RECORDS.values()
    yield from (CONFIRMED, DOUBTED)
    yield random_machine(3).search().record
    yield session_of(7).search().record


def test_an_answer_of_a_function_is_kept_with_them():
    asked = []

    @once
    def number(measurements):
        asked.append(measurements)
        return len(asked)

    first, other = (Measurements.of(CONFIRMED) for _ in range(2))
    assert [number(first), number(other), number(first), number(other)] == [1, 2, 1, 2]


@pytest.mark.parametrize("kind", ["knee", "throughput", "memory", "energy"])
def test_what_was_asked_changes_nothing(kind):
    """After a whole decision each fact is what another one, asked for nothing else, computes."""
    for record in every_record():
        goal = msgspec.structs.replace(record.goal, kind=kind)
        shared = Measurements.of(record, goal)
        choose(shared, goal)
        for name in FACTS.keys() - KEPT_BY_SIZE:
            assert getattr(shared, name) == getattr(Measurements.of(record, goal), name), name
        for function, answer in shared.answers.items():
            assert function(Measurements.of(record, goal)) == answer, function
        for size, is_harmful in shared._harmful.items():
            assert Measurements.of(record, goal).harmful(size) is is_harmful
        for size, is_risky in shared._too_risky.items():
            assert Measurements.of(record, goal).too_risky(size) is is_risky


def test_another_goal_has_facts_of_its_own():
    trials = numbered(trial_of(8, 0.1, peak=10**9), trial_of(32, 0.16, peak=70 * 10**9))
    measurements = Measurements.of(record_of(trials))
    assert measurements.under(Goal()) is measurements
    tight = measurements.under(Goal(margin=0.5))
    assert (measurements.is_another_goal, tight.is_another_goal) == (False, True)
    assert (tight.goal.margin, tight.measured_for) == (0.5, Goal())
    assert (set(measurements.searched), set(tight.searched)) == ({8, 32}, {8})
    assert not tight.under(Goal()).is_another_goal


def test_where_no_training_loop_was_found():
    record = msgspec.structs.replace(record_of([trial_of(8, 0.1)]), discovery=None)
    measurements = Measurements.of(record)
    assert (measurements.own_size, measurements.epoch_samples) == (None, None)
    assert measurements.can_be_delivered(1 << 20)
    assert not measurements.harmful(8)
    assert measurements.last_batch(8) is None
