"""The buffer tells the core later what a loop did; the core must not see a difference."""

from __future__ import annotations

import random

import pytest
from batchadvisor.callback.event_buffer import MAX_MICRO_BATCHES, EventBuffer
from batchadvisor.callback.step_counter import NEVER, Core

MS = 1_000_000
COUNTS = (
    "num_ended", "num_skipped_steps", "num_micro_batches", "num_samples", "num_unsized",
    "num_epochs", "sizes", "tails", "size", "step_size", "was_even", "recent", "last",
)  # fmt: skip


class Clock:
    def __init__(self):
        self.now = 1

    def __call__(self):
        return self.now


class Busy:
    """A listener with something to do at the first step, at certain steps and now and then.

    Args:
        steps: numbers of steps at which it is due.
        every_ms: time from one save to the next.
    """

    def __init__(self, clock, steps, every_ms):
        self.calls, self.grown = [], []
        self._clock, self._steps, self._every_ms = clock, sorted(steps), every_ms

    def boundary(self, core, now_ns):
        self.calls.append((core.num_ended, now_ns))
        self._clock.now += 3 * MS
        if now_ns >= core.due_ns:
            core.due_ns = now_ns + self._every_ms * MS
        core.due_step = next((step for step in self._steps if step > core.num_ended), NEVER)
        core.timing = core.num_ended % 7 != 0

    def pause(self, core):
        pass

    def growth(self, core):
        self.grown.append(max(core.sizes, default=0))


def loop(seed):
    """Events of a training with epochs, accumulation, validation and a scaler that skips."""
    draw = random.Random(seed)
    micro, size = draw.choice([1, 1, 2, 3]), draw.choice([8, 32])
    for _ in range(draw.randint(1, 4)):
        for step in range(draw.randint(1, 150)):
            for _ in range(micro):
                yield "begin", None
                yield "pass", draw.randint(0, 3)
                wait = draw.randint(0, 2)
                odd = draw.random() < 0.02
                yield "micro", (draw.choice([None, 3]) if odd else size, wait * MS)
                yield "pass", draw.choice([1, 4, 4, 60])
            if draw.random() < 0.98:
                yield "end", draw.random() > 0.05
            if step % 40 == 39 or draw.random() < 0.01:
                yield "pause", False
                yield "pass", 500
            if draw.random() < 0.02:
                yield "end", True  # a step without a fetch
        yield "pause", True


def drive(target, clock, events):
    target.on_run_begin()
    for kind, value in events:
        if kind == "begin":
            target.on_step_begin()
        elif kind == "micro":
            target.on_microbatch(*value)
        elif kind == "end":
            target.on_step_end(value)
        elif kind == "pause":
            target.on_pause(epoch_ended=value)
        else:
            clock.now += value * MS
    target.on_run_end()


def state(core):
    kinds = {
        key: (kind.num_steps, kind.elapsed_ns, kind.times.values, kind.times.count, kind.unsettled)
        for key, kind in core.kinds.items()
    }
    return {name: getattr(core, name) for name in COUNTS} | {"kinds": kinds}


@pytest.mark.parametrize("seed", range(40))
def test_the_core_sees_what_it_would_have_seen(seed):
    draw = random.Random(seed)
    steps = draw.sample(range(2, 400), draw.choice([0, 3, 30]))
    every_ms = draw.choice([20, 700, 10_000])
    states = []
    for taped in (False, True):
        clock = Clock()
        listener = Busy(clock, steps, every_ms)
        core = Core(listener, clock=clock)
        drive(EventBuffer(core, clock) if taped else core, clock, list(loop(seed)))
        states.append((state(core), listener.calls, clock.now))
    direct, taped = states
    assert direct[0]["num_micro_batches"] > 0
    assert len(direct[1]) > 0
    assert taped == direct


def buffered(every_ms):
    """A clock, a core that is told nothing else than what the buffer tells it, and the buffer."""
    clock = Clock()
    core = Core(Busy(clock, [], every_ms), clock=clock)
    return clock, core, EventBuffer(core, clock)


def test_it_waits_and_stays_short():
    """Marks are kept back where nothing is due, and bounded."""
    clock, core, buffer = buffered(10_000_000)
    buffer.on_run_begin()
    longest = 0
    for _ in range(10_000):
        buffer.on_step_begin()
        buffer.on_microbatch(8, 5)
        buffer.on_step_end()
        clock.now += 1000
        longest = max(longest, len(buffer.marks))
    assert 4 * (MAX_MICRO_BATCHES - 1) < longest <= 4 * (MAX_MICRO_BATCHES + 1)
    buffer.on_run_end()
    assert (core.num_steps, core.num_samples, buffer.marks) == (10_000, 80_000, [])


def test_slow_steps_are_told_soon():
    """A step of more than the slice is in the core before the next one runs."""
    clock, core, buffer = buffered(10_000_000)
    for place in range(5):
        buffer.on_step_begin()
        assert core.num_ended == place
        buffer.on_microbatch(8, 5)
        clock.now += 100 * MS
        buffer.on_step_end()


def test_growth_is_told_before_the_larger_batch_counts():
    _, core, buffer = buffered(10_000)
    for size in (4, 4, 2, 8, 8, 16, None, 3):
        buffer.on_step_begin()
        buffer.on_microbatch(size)
        buffer.on_step_end()
    assert core._listener.grown == [0, 4, 8]


def test_a_loop_that_tells_of_steps_alone():
    _, core, buffer = buffered(10)
    for _ in range(1000):
        buffer.on_step_end()
    assert len(buffer.marks) <= 1
    buffer.on_run_end()
    assert core.num_ended == 1000  # each end is a step, without a begin too
