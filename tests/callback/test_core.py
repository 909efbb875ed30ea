"""The core, driven by a clock of the test's own."""

from __future__ import annotations

import gc
import random
import tracemalloc

import pytest
from batchadvisor.callback.loop_info import Facts
from batchadvisor.callback.step_counter import MAX_KINDS, NEVER, Core
from batchadvisor.callback.step_kinds import Reservoir
from batchadvisor.callback.trials_from_counts import observed_of

MS = 1_000_000


class Clock:
    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now

    def pass_ms(self, ms):
        self.now += ms * MS


class Quiet:
    """A listener that is never due again and keeps when it was called."""

    def __init__(self):
        self.calls = []

    def boundary(self, core, now_ns):
        self.calls.append(core.num_ended)
        core.due_ns = NEVER

    def growth(self, core):
        pass


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def core(clock):
    instance = Core(Quiet(), clock=clock)
    instance.on_run_begin()
    return instance


def run_steps(core, clock, sizes, *, micro=1, step_ms=10, wait_ms=1):
    """Steps of `micro` micro-batches each; the fetch takes `wait_ms` of `step_ms`."""
    for size in sizes:
        for place in range(micro):
            core.on_step_begin()
            clock.pass_ms(wait_ms)
            core.on_microbatch(size, wait_ms * MS)
            if place == micro - 1:
                clock.pass_ms(step_ms - micro * wait_ms)
                core.on_step_end()


class TestCounts:
    def test_steps_samples_and_sizes(self, core, clock):
        run_steps(core, clock, [8, 8, 8, 3])
        core.on_pause(epoch_ended=True)
        run_steps(core, clock, [8, 8, 8, 3])
        core.on_run_end()
        assert core.num_steps == 8
        assert core.num_micro_batches == 8
        assert core.num_samples == 54
        assert core.sizes == {8: 6, 3: 2}
        assert core.usual_size == 8
        assert core.tails == {8: 3}
        assert core.num_epochs == 1

    def test_each_size_of_a_schedule_has_its_own_tail(self, core, clock):
        for size, num, end in ((32, 31, 8), (32, 31, 8), (64, 15, 40), (100, 10, None)):
            run_steps(core, clock, [size] * num + ([end] if end else []))
            core.on_pause(epoch_ended=True)
        assert core.tails == {32: 8, 64: 40}

    def test_accumulation(self, core, clock):
        run_steps(core, clock, [4] * 5, micro=3)
        core.on_run_end()
        assert (core.num_steps, core.num_micro_batches, core.num_samples) == (5, 15, 60)
        assert list(core.kinds) == [(4, 3)]

    def test_a_skipped_step_is_no_step(self, core, clock):
        run_steps(core, clock, [4])
        core.on_step_begin()
        core.on_microbatch(4)
        core.on_step_end(stepped=False)
        core.on_run_end()
        assert (core.num_steps, core.num_skipped_steps, core.num_samples) == (1, 1, 8)

    def test_a_batch_without_a_size(self, core, clock):
        run_steps(core, clock, [None, 4])
        core.on_run_end()
        assert (core.num_steps, core.num_unsized, core.num_samples) == (2, 1, 4)
        assert list(core.kinds) == [(4, 1)]

    def test_micro_batches_of_two_sizes_are_counted_and_not_timed(self, core, clock):
        for size in (4, 4, 2):
            core.on_step_begin()
            core.on_microbatch(size)
        core.on_step_end()
        core.on_run_end()
        assert (core.num_steps, core.num_samples) == (1, 10)
        assert core.kinds == {}
        assert not core.was_even

    def test_out_of_memory_takes_the_last_size(self, core, clock):
        run_steps(core, clock, [4])
        core.on_step_begin()
        core.on_microbatch(64)
        core.on_oom(MemoryError("no more\nsecond line"))
        assert core.refused == (64, "MemoryError: no more")


class TestTimes:
    def test_from_begin_to_begin(self, core, clock):
        run_steps(core, clock, [8] * 6)
        clock.pass_ms(5)  # what the loop does after its last step belongs to that step
        core.on_step_begin()
        kind = core.kinds[8, 1]
        times = sorted(kind.times.values)
        assert times == [(10 * MS, MS), (10 * MS, MS), (15 * MS, MS)]
        assert kind.unsettled == [(10 * MS, MS)] * 3  # the first steps of a run

    def test_the_first_step_of_a_shape_is_left_out(self, core, clock):
        run_steps(core, clock, [8] * 5 + [2] + [8] * 3)
        core.on_run_end()
        assert core.kinds[8, 1].times.count == 2 + 2
        assert core.kinds[2, 1].times.count == 0
        assert core.kinds[2, 1].num_steps == 1

    def test_a_pause_is_in_no_step(self, core, clock):
        run_steps(core, clock, [8] * 5)
        core.on_pause()
        clock.pass_ms(1000)
        run_steps(core, clock, [8] * 5)
        core.on_run_end()
        kind = core.kinds[8, 1]
        assert {step for step, _ in [*kind.times.values, *kind.unsettled]} == {10 * MS}

    def test_a_step_over_a_pause_is_not_timed(self, core, clock):
        run_steps(core, clock, [8] * 5, micro=2)
        core.on_step_begin()
        core.on_microbatch(8)
        core.on_pause(epoch_ended=True)
        clock.pass_ms(1000)
        core.on_step_begin()
        core.on_microbatch(8)
        core.on_step_end()
        core.on_run_end()
        kind = core.kinds[8, 2]
        assert core.num_steps == kind.num_steps == 6
        assert kind.times.count + len(kind.unsettled) == 5

    def test_nothing_is_timed_while_a_profiler_runs(self, core, clock):
        run_steps(core, clock, [8] * 5)
        core.on_pause()
        core.timing = False
        run_steps(core, clock, [8] * 5, step_ms=500)
        core.on_pause()
        kind = core.kinds[8, 1]
        assert kind.num_steps == 10
        assert {step for step, _ in [*kind.times.values, *kind.unsettled]} == {10 * MS}

    def test_a_loop_that_tells_of_no_begin_is_counted(self, core, clock):
        for _ in range(3):
            core.on_step_end()
            core.on_step_begin()
        assert core.num_ended == 3

    def test_several_steps_in_one_call(self, core, clock):
        for _ in range(3):
            core.on_step_begin()
            clock.pass_ms(40)
            core.on_execution([8] * 4, 1)
        core.on_step_begin()
        clock.pass_ms(10)
        core.on_execution([5], 1)
        core.on_run_end()
        assert (core.num_steps, core.num_samples) == (13, 101)
        kind = core.kinds[8, 1]
        assert list(kind.times.values) == [(10 * MS, 0)] * 2  # the first call compiles

    def test_what_the_listener_does_is_in_no_step(self, clock):
        class Slow(Quiet):
            def boundary(self, core, now_ns):
                super().boundary(core, now_ns)
                core.due_ns = 0  # due at every step
                clock.pass_ms(300)

        core = Core(Slow(), clock=clock)
        run_steps(core, clock, [8] * 8)
        core.on_run_end()
        kind = core.kinds[8, 1]
        assert {step for step, _ in [*kind.times.values, *kind.unsettled]} == {10 * MS}

    def test_the_listener_is_called_when_due(self, core, clock):
        run_steps(core, clock, [8] * 3)
        core.due_step = 6
        run_steps(core, clock, [8] * 10)
        core.on_run_end()
        listener = core._listener
        assert listener.calls[0] == 1
        assert 6 in listener.calls


class TestConstantMemory:
    def test_a_million_steps(self):
        """No torch work: what is kept of a million steps is what is kept of fifty thousand."""
        core = Core(Quiet())
        core.on_run_begin()
        begin, arrived, end = core.on_step_begin, core.on_microbatch, core.on_step_end

        def steps(num):
            for place in range(num):
                begin()
                arrived(32 if place % 50 else 7, 5)
                end()

        steps(50_000)
        gc.collect()
        tracemalloc.start()
        steps(20_000)
        gc.collect()
        first, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()  # traced, every call costs ten times as much
        steps(900_000)
        tracemalloc.start()
        steps(30_000)
        gc.collect()
        last, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        core.on_run_end()
        assert core.num_steps == 1_000_000
        assert core.num_samples == 32 * 980_000 + 7 * 20_000
        assert len(core.kinds[32, 1].times.values) == 512
        assert core.kinds[32, 1].times.count > 900_000
        assert last < first + 100_000

    def test_many_sizes_are_counted_together(self, core, clock):
        run_steps(core, clock, list(range(1, 301)))
        core.on_run_end()
        assert len(core.sizes) == len(core.kinds) == MAX_KINDS
        assert core.num_other_sizes == 300 - MAX_KINDS
        told = {"profiled": (), "held_bytes": None, "noise": None, "reasons": {}}
        observed = observed_of(core, Facts(framework="plain"), **told)
        assert observed.unavailable["sizes"].startswith("236 micro-batches of further sizes")
        assert core.num_samples == sum(range(1, 301))


class TestReservoir:
    def test_all_of_a_short_stream(self):
        reservoir = Reservoir(10)
        for value in range(7):
            reservoir.add(value)
        assert reservoir.values == list(range(7))
        assert reservoir.count == 7

    def test_each_value_is_as_likely(self):
        """In 400 streams of 200 values a sample of 20 holds each tenth of the stream alike."""
        tenths = [0] * 10
        for seed in range(400):
            reservoir = Reservoir(20, seed=seed)
            for value in range(200):
                reservoir.add(value)
            assert len(reservoir.values) == 20
            assert len(set(reservoir.values)) == 20
            for value in reservoir.values:
                tenths[value // 20] += 1
        # 800 expected in each; the standard deviation is 26.
        assert all(700 < tenth < 900 for tenth in tenths)

    def test_the_users_random_numbers_are_left_alone(self):
        random.seed(3)
        wanted = random.random()
        random.seed(3)
        reservoir = Reservoir(5)
        for value in range(100):
            reservoir.add(value)
        assert random.random() == wanted
