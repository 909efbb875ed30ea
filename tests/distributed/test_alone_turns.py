"""Ranks that take turns alone, on threads: who makes which step, also where ranks talk."""

import itertools
import threading
import time

import pytest
from batchadvisor.probes.distributed import alone_turns
from batchadvisor.probes.distributed.alone_turns import TALKS, AloneTurns

STEPS = 2


class Meeting:
    """All ranks of one process, met at a barrier that keeps who has arrived."""

    def __init__(self, world_size):
        self._world_size = world_size
        self._condition = threading.Condition()
        self._arrived = [0] * world_size
        self._said = []

    def of(self, rank):
        return _Rank(self, rank)

    def arrive(self, rank, decision):
        with self._condition:
            if rank == 0:
                self._said.append(decision)
            self._arrived[rank] += 1
            self._condition.notify_all()

    def met(self, number, limit_s):
        with self._condition:
            there = self._condition.wait_for(lambda: min(self._arrived) >= number, limit_s)
            return self._said[number - 1] if there else None


class _Rank:
    def __init__(self, meeting, rank):
        self._meeting, self._rank, self._number = meeting, rank, 0

    def arrive(self, decision=False):
        self._number += 1
        self._meeting.arrive(self._rank, decision)

    def met(self, limit_s):
        return self._meeting.met(self._number, limit_s)


def play(world_size, step, rounds=3, num_steps=STEPS):
    """What each rank made: (start, end, counted) of every step, and why there were no more.

    The last step of a turn counts.
    """
    meeting = Meeting(world_size)
    made = [[] for _ in range(world_size)]
    reasons = [""] * world_size

    def rank_main(rank):
        turns = AloneTurns(rank, world_size, [], meeting.of(rank))
        for _ in range(rounds):
            if not turns.begin(0.01):
                continue
            for left in reversed(range(num_steps)):
                start = time.perf_counter()
                step(rank, len(made[rank]))
                end = time.perf_counter()
                turns.made()
                made[rank].append((start, end, not left and not turns.unavailable))
            turns.end()
        reasons[rank] = turns.unavailable

    threads = [threading.Thread(target=rank_main, args=(rank,)) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    return made, reasons


@pytest.mark.parametrize(("world_size", "num"), [(2, STEPS), (3, STEPS), (8, 6)])
def test_one_rank_at_a_time(world_size, num):
    made, reasons = play(world_size, lambda rank, number: time.sleep(0.001), num_steps=num)
    assert [len(steps) for steps in made] == [3 * num] * world_size
    spans = sorted(step for steps in made for step in steps)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
    assert [counted for _, _, counted in made[0]] == ([False] * (num - 1) + [True]) * 3
    assert set(reasons) == {""}


@pytest.mark.parametrize("every", [1, 3])
def test_ranks_that_talk_are_set_free(monkeypatch, every):
    """A collective in every step, or in every third: all ranks make as many, and it ends."""
    monkeypatch.setattr(alone_turns, "LEAST_PATIENCE_S", 1.0)
    barrier = threading.Barrier(3)

    def step(rank, number):
        if number % every == every - 1:
            barrier.wait(10)

    made, reasons = play(3, step)
    assert len({len(steps) for steps in made}) == 1
    assert reasons[0] == TALKS
    counted = [counted for steps in made for _, _, counted in steps]
    assert sum(counted) == (0 if every == 1 else 3)


def test_more_ranks_take_no_turns():
    made, reasons = play(9, lambda rank, number: None)
    assert made == [[]] * 9
    assert reasons[0] == "it is measured for 8 ranks at most"


class Module:
    def __call__(self):
        return "module"


class Wrapped:
    mixed_precision = None

    def __init__(self, device_ids=None):
        self.device_ids = device_ids
        self.module = Module()

    def forward(self):
        return "wrapper"


def test_the_wrapper_is_left_out_and_put_back():
    """But for one that moves its inputs to a device."""
    model, moves = Wrapped(), Wrapped(device_ids=[0])
    turns = AloneTurns(0, 1, [model, moves], Meeting(1).of(0), bare=True)
    assert turns.begin(0.01)
    assert (model.forward(), moves.forward()) == ("module", "wrapper")
    turns.made()
    assert model.forward() == "module"
    turns.end()
    assert model.forward() == "wrapper"
