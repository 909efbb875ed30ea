"""Rounds over processes that live at once, with workers that answer from a list."""

import pytest
from batchadvisor.probes.process.messages import Result
from batchadvisor.probes.process.orders import RunTrial
from batchadvisor.records import TrialRequest, Turns, TurnsPlan
from batchadvisor.session.workers.in_turn import WorkersInTurn

from ..on_paper import trial_of

PLAN = TurnsPlan(sizes=(8, 64), num_steps=(15, 5), num_warmup_steps=1, num_rounds=4)


class Process:
    """One size: each turn takes the next of these seconds, and lost the next of those."""

    def __init__(self, number, heard, *, lost_s=(), outcome="ok", cut_from=99):
        self.number, self.heard = number, heard
        self.lost_s, self.outcome, self.cut_from = list(lost_s), outcome, cut_from

    def ask(self, order):
        plan, size = order.request.turns, order.request.batch_size
        assert plan.sizes == (size,)
        assert plan.num_rounds == 1
        self.heard.append((size, plan.num_steps[0]))
        lost_s = self.lost_s.pop(0) if self.lost_s else 0.0
        rows = ((0.1 * size,),) if len(self.heard) < self.cut_from else ()
        turns = Turns(sizes=(size,), step_s=rows, lost_s=((lost_s,),) if rows else ())
        trial = trial_of(size, kind="turns", worker=self.number, turns=turns, outcome=self.outcome)
        return Result(trial=trial)


def asked(heard, *, time_limit_s=60.0, deadline_s=None, **small):
    request = TrialRequest(batch_size=64, kind="turns", purpose="confirm", turns=PLAN)
    order = RunTrial(
        request=request, ordinal=3, precision=0.05, time_limit_s=time_limit_s, deadline_s=deadline_s
    )
    workers = {8: Process(5, heard, **small), 64: Process(6, heard)}
    return WorkersInTurn(workers).ask(order).trial


def test_each_has_its_turn_in_each_round():
    heard = []
    trial = asked(heard)
    assert trial.batch_size == 64
    assert trial.turns.workers == (5, 6)
    assert trial.turns.step_s == ((pytest.approx(0.8), pytest.approx(6.4)),) * 4
    assert trial.turns.lost_s == ((0.0, 0.0),) * 4
    rounds = [heard[at : at + 2] for at in range(0, len(heard), 2)]
    assert all(sorted(each) == [(8, 15), (64, 5)] for each in rounds)
    assert {each[0][0] for each in rounds} == {8, 64}, "neither always begins"


def test_rounds_that_were_disturbed_are_made_again():
    heard = []
    assert len(asked(heard, lost_s=[0.01, 0.0, 0.02]).turns.step_s) == 6
    # Not for longer than a trial may take.
    assert len(asked([], lost_s=[0.01], time_limit_s=0.0).turns.step_s) == 4


def test_a_turn_that_the_deadline_cut_short_makes_no_round():
    trial = asked([], cut_from=7, deadline_s=0.0)
    assert len(trial.turns.step_s) == 1
    trial = asked([], cut_from=0, deadline_s=0.0)
    assert trial.turns.step_s == ()
    assert trial.turns.workers == (5, 6)


def test_one_that_fails_is_the_result():
    trial = asked([], outcome="wrong_size")
    assert (trial.outcome, trial.batch_size) == ("wrong_size", 8)
