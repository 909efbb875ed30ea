"""Sizes that take turns in one loop, driven by a clock and a device on paper."""

from collections import Counter

import msgspec
import pytest
from batchadvisor.probes.windows.interleaved_window import LEAST_ROUNDS, TurnsWindow
from batchadvisor.probes.windows.step_evidence import Reading
from batchadvisor.records import TrialRequest, TurnsPlan

from .window_loop import Device

PLAN = TurnsPlan(sizes=(8, 32), num_steps=(3, 1), num_warmup_steps=2, num_rounds=4)


class Loop:
    """A training loop that takes what the window asks; a step takes `seconds` a sample."""

    def __init__(self, plan=PLAN, *, seconds=0.01, limit_s=1000.0, seed=5, **options):
        self.device = Device()
        request = TrialRequest(batch_size=max(plan.sizes), kind="turns", turns=plan)
        self.window = TurnsWindow(
            request,
            self.device,
            seed=seed,
            time_limit_s=limit_s,
            clock=self.device.clock,
            **options,
        )
        self.seconds = seconds
        self.asked = []
        self.window.resume()

    def step(self, *, arrived=None, micro=1, slower=1.0, proof="shape", parts=1):
        size = self.window.size
        self.asked.append(size)
        for _ in range(micro):
            self.window.arrived(arrived or size, proof, 0.001, primary=True)
        self.device.now += slower * self.seconds * size
        complete = self.window.boundary(parts)
        if not complete:
            self.window.resume()
        return complete

    def run(self, **each):
        """The comparison of steps that are all alike."""
        for _ in range(3000):
            if self.step(**each):
                return self.window.result(7, 2)
        pytest.fail("the turns do not end")


class Reader:
    """Reads counters that the test sets."""

    def __init__(self):
        self.unavailable = {}
        self.process_s = 0.0

    def read(self):
        return Reading({1: 0}, None, None, 0, self.process_s, self.process_s, 0)


def assert_usual(rows):
    """Every turn has the time of its size."""
    assert rows
    for row in rows:
        assert row == pytest.approx((0.08, 0.32))


def test_every_size_has_its_turn_in_every_round():
    loop = Loop()
    trial = loop.run()
    assert Counter(loop.asked) == {8: 4 * 5, 32: 4 * 3}
    assert trial.ran
    assert (trial.kind, trial.batch_size, trial.ordinal) == ("turns", 32, 7)
    assert trial.turns.sizes == (8, 32)
    assert len(trial.turns.step_s) == 4
    assert_usual(trial.turns.step_s)
    assert trial.step_s is trial.memory is None
    assert "turns" in trial.unavailable["step_s"]


def test_several_steps_between_two_fetches():
    trial = Loop().run(micro=4, slower=4.0, parts=4)
    assert trial.micro_batches == 1
    assert_usual(trial.turns.step_s)


def test_the_first_steps_after_another_size_do_not_count():
    loop = Loop()
    before = None
    for _ in range(4 * 8):
        fresh = loop.window.size != before
        before = loop.window.size
        loop.step(slower=50.0 if fresh else 1.0)
    times = [seconds for row in loop.window.result(0, 0).turns.step_s for seconds in row]
    assert max(times) == pytest.approx(0.32)


def test_batches_that_were_taken_ahead():
    """Three steps of each turn are still made with batches of the turn before, and do not count."""
    loop = Loop(num_ahead=3)
    queue = [8] * 3
    done = False
    while not done:
        queue.append(loop.window.size)
        done = loop.step(slower=queue[len(loop.asked)] / loop.window.size)
    trial = loop.window.result(7, 2)
    assert Counter(loop.asked) == {8: 4 * 8, 32: 4 * 6}
    assert trial.num_warmup_steps == 5
    assert_usual(trial.turns.step_s)


def test_the_order_differs_between_rounds_and_not_between_ranks():
    plan = TurnsPlan(sizes=(1, 2, 3), num_steps=(1, 1, 1), num_warmup_steps=0, num_rounds=9)
    first, same, other = Loop(plan), Loop(plan), Loop(plan, seed=6)
    for loop in (first, same, other):
        loop.run()
    assert first.asked == same.asked != other.asked
    orders = {tuple(first.asked[start : start + 3]) for start in range(0, 27, 3)}
    assert len(orders) > 2
    assert all(set(order) == {1, 2, 3} for order in orders)


def test_samples_that_were_left_out():
    loop = Loop()
    while not loop.step(arrived=loop.window.size - 1, proof="drawn"):
        pass
    trial = loop.window.result(7, 2)
    assert trial.ran
    assert trial.size_proof == "indices"


def test_only_steps_that_count_are_kept():
    loop = Loop()
    loop.run()
    kept = loop.window.samples()
    assert len(kept) == 4 * (3 + 1)
    assert {sample.num_samples for sample in kept} == {8, 32}
    assert all(sample.input_wait_s == 0.001 for sample in kept)


def test_time_ends_it_after_whole_rounds():
    assert len(Loop(limit_s=0.001).run().turns.step_s) == LEAST_ROUNDS


def test_another_size_than_asked_for_is_no_comparison():
    loop = Loop()
    loop.step(arrived=5)
    trial = loop.run()
    assert not trial.ran
    assert trial.outcome == "wrong_size"
    assert "5 samples arrived" in trial.detail


def test_a_step_of_another_kind_leaves_its_turn_out():
    """A scaler that skips a step makes the next one twice as long."""
    loop = Loop(TurnsPlan(sizes=(8, 32), num_steps=(1, 1), num_warmup_steps=0, num_rounds=3))
    loop.step(micro=2)
    first = loop.asked[0]
    turns = loop.run().turns
    column = turns.sizes.index(first)
    assert turns.step_s[0][column] is None
    assert all(seconds is not None for row in turns.step_s[1:] for seconds in row)


def test_ranks_end_together():
    """The leading rank decides; the others ask at every step and follow."""
    answers = []

    def agree(decision):
        answers.append(decision)
        return len(answers) >= 10  # another rank leads and ends here

    loop = Loop(agree=agree)
    loop.run()
    assert len(answers) == len(loop.asked) == 10


def test_a_slow_step_of_the_script_decides_no_round():
    """One of a turn is left out; a turn of nothing else has no time."""
    loop, num_large, made = Loop(), 0, False
    while not made:
        num_large += loop.window.size == 32
        # The first that counts: two were for warming up.
        slow = loop.window.size == 32 and num_large == 3
        made = loop.step(slower=20.0 if slow else 1.0)
    first, *others = loop.window.result(7, 2).turns.step_s
    assert first == (pytest.approx(0.08), None)
    assert_usual(others)


def test_steps_that_are_often_slow_keep_their_time():
    loop, number, made = Loop(), 0, False
    while not made:
        number += 1
        made = loop.step(slower=20.0 if number % 2 == 0 else 1.0)
    turns = loop.window.result(7, 2).turns
    assert None not in [value for row in turns.step_s for value in row]


def test_a_long_turn_ends_before_its_steps_are_made():
    """Beside others a step may suddenly take fifty times as long: one of it will do."""
    plan = msgspec.structs.replace(PLAN, most_s=0.2)
    loop = Loop(plan)
    while not loop.step(slower=50.0):
        pass
    # Two to warm up and one that counts, of each size in each round.
    assert Counter(loop.asked) == {8: 4 * 3, 32: 4 * 3}
    assert loop.window.result(7, 2).turns.step_s == ((pytest.approx(4.0), pytest.approx(16.0)),) * 4
    usual = Loop(msgspec.structs.replace(plan, most_s=1.0))
    usual.run()
    assert Counter(usual.asked) == {8: 4 * 5, 32: 4 * 3}


def test_a_long_turn_of_workers_ends_with_a_whole_burst():
    plan = msgspec.structs.replace(PLAN, num_steps=(6, 2), most_s=0.2)
    loop = Loop(plan, num_workers=2)
    while not loop.step(slower=50.0):
        pass
    assert Counter(loop.asked) == {8: 4 * (2 + 2), 32: 4 * (2 + 2)}


def test_cpu_time_of_the_steps_that_count():
    reader = Reader()
    loop = Loop(evidence=reader)
    while not loop.step():
        reader.process_s += 0.5
    turns = loop.window.result(7, 2).turns
    assert turns.cpu_s == ((pytest.approx(0.5),) * 2,) * 4
    assert Loop(evidence=Reader(), asynchronous=True).run().turns.cpu_s == ()
