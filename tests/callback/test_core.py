"""The core, driven by a clock of the test's own."""

from __future__ import annotations

import random

import pytest
import torch
from batchadvisor.callback.loop_info import Facts
from batchadvisor.callback.step_counter import MAX_KINDS, MAX_UNSETTLED, NEVER, Core
from batchadvisor.callback.step_kinds import Reservoir
from batchadvisor.callback.trials_from_counts import observed_of

from ..virtual_gpu.device import Clock

MS = 1_000_000


class Quiet:
    """A listener that is never due again."""

    def boundary(self, core, now_ns):
        core.due_ns = NEVER

    def pause(self, core):
        pass

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
    """Plain loops are counted in test_plain.py and test_sizes.py."""

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


def step_times(kind):
    return {step for step, _ in [*kind.times.values, *kind.unsettled]}


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
        assert step_times(core.kinds[8, 1]) == {10 * MS}

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
        assert step_times(kind) == {10 * MS}

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
                core.due_ns = 0  # due at every step
                clock.pass_ms(300)

        core = Core(Slow(), clock=clock)
        run_steps(core, clock, [8] * 8)
        core.on_run_end()
        assert step_times(core.kinds[8, 1]) == {10 * MS}


def test_few_of_the_steps_that_follow_another_shape_are_kept(core, clock):
    run_steps(core, clock, [8, 2] * 50)
    core.on_run_end()
    assert len(core.kinds[8, 1].unsettled) == MAX_UNSETTLED


def test_many_sizes_are_counted_together(core, clock):
    """So that memory is constant; a million steps of one size are in test_endings.py."""
    run_steps(core, clock, list(range(1, 301)))
    core.on_run_end()
    assert len(core.sizes) == len(core.kinds) == MAX_KINDS
    assert core.num_other_sizes == 300 - MAX_KINDS
    told = {"profiled": (), "held_bytes": None, "noise": None, "reasons": {}}
    observed = observed_of(core, Facts(framework="plain"), **told)
    assert observed.unavailable["sizes"].startswith("236 micro-batches of further sizes")
    assert core.num_samples == sum(range(1, 301))


def test_an_optimizer_inside_of_others():
    """DeepSpeed's own is no optimizer of torch, and what it steps may lie on the CPU."""

    class Around:
        def __init__(self, optimizer):
            self.optimizer = optimizer
            self.param_groups = optimizer.param_groups

    model = torch.nn.Linear(4, 2, device="meta")
    offloaded = [torch.zeros(10, requires_grad=True)]
    facts = Facts(framework="plain")
    facts.add_optimizer(Around(Around(torch.optim.SGD(offloaded, lr=0.1))))
    facts.add_model(model)
    assert (facts.optimizers[0].name, facts.optimizers[0].learning_rate) == ("SGD", 0.1)
    assert facts.device == "meta"


def sample_of(num_values, seed=0):
    reservoir = Reservoir(20, seed=seed)
    for value in range(num_values):
        reservoir.add(value)
    assert reservoir.count == num_values
    return reservoir.values


def test_each_value_of_a_long_stream_is_as_likely_to_be_kept():
    """In 400 streams of 200 values a sample of 20 holds each tenth of the stream alike."""
    assert sample_of(7) == list(range(7))
    tenths = [0] * 10
    for seed in range(400):
        values = sample_of(200, seed)
        assert len(values) == len(set(values)) == 20
        for value in values:
            tenths[value // 20] += 1
    # 800 expected in each; the standard deviation is 26.
    assert all(700 < tenth < 900 for tenth in tenths)
    random.seed(3)
    sample_of(100)
    drawn = random.random()
    random.seed(3)
    assert drawn == random.random(), "the user's random numbers are left alone"
