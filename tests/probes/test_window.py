"""One trial, driven by a clock and a device on paper."""

import itertools

import msgspec
import pytest
from batchadvisor.probes.windows.step_evidence import Reading
from batchadvisor.probes.windows.timed_steps import (
    MAX_CLEAN_SAMPLES,
    MAX_STEPS_A_SAMPLE,
    SHOWN_STEPS,
)
from batchadvisor.probes.windows.warm_up import MAX_WARMUP_STEPS
from batchadvisor.probes.windows.window import FIT_STEPS
from batchadvisor.records import StepFlops, TrialRequest

from .window_loop import MIN_SAMPLES, MIN_WARMUP_STEPS, Device, Loop, Profiler

FIT = TrialRequest(batch_size=8, kind="fit")


class WaitsForACore:
    """Counters of steps that wait for 30 ms and compute for 50 ms.

    Args:
        calm: steps that do not wait.
    """

    def __init__(self, calm=()):
        self.calm = calm
        self.unavailable = {}
        self.num_read, self.waited_ns = 0, 0

    def renew(self):
        pass

    def read(self):
        step, ends = divmod(self.num_read, 2)  # once as a step begins, once as it ends
        self.num_read += 1
        if ends and step not in self.calm:
            self.waited_ns += 30_000_000
        process_s = 0.05 * (step + ends)
        return Reading({1: self.waited_ns}, None, None, 0, process_s, process_s, 0)


class TestFit:
    def test_two_steps_and_the_memory(self):
        loop = Loop(msgspec.structs.replace(FIT, purpose="tail"))
        trial = loop.run()
        assert loop.num_steps == FIT_STEPS == 2
        assert (trial.outcome, trial.kind, trial.purpose) == ("ok", "fit", "tail")
        assert (trial.ordinal, trial.worker) == (5, 2)
        assert trial.memory.peak_bytes == 1000
        assert (trial.step_s, trial.samples_per_s, trial.input_wait_s) == (None, None, None)
        assert set(trial.unavailable) == {"step_s", "samples_per_s", "input_wait_s"}
        assert trial.elapsed_s == pytest.approx(0.2)

    @pytest.mark.parametrize(("num_ahead", "num_left_out"), [(0, 1), (5, 5)])
    def test_after_a_larger_size_the_first_steps_do_not_count(self, num_ahead, num_left_out):
        """The larger batch is still alive, or a thread had filled a queue with such batches: peaks
        are reset once more after each.
        """
        loop = Loop(FIT, shrinks=True, num_ahead=num_ahead)
        loop.run()
        assert loop.num_steps == FIT_STEPS + num_left_out
        resets = [at for at, call in enumerate(loop.device.calls) if call == "reset"]
        assert len(resets) == 1 + num_left_out
        assert resets[-1] < loop.device.calls.index("memory")


class TestPlannedAsLong:
    """A request for few steps, since a script's first ones took seconds."""

    FEW = TrialRequest(batch_size=8, kind="timed", min_warmup_steps=1, min_timed_steps=3)

    def test_short_steps_are_as_many_as_of_any_trial(self):
        trial = Loop(self.FEW, time_limit_s=2.0).run([0.02])
        assert trial.num_warmup_steps >= 2
        assert trial.quality.num_steps >= MIN_SAMPLES

    def test_long_ones_are_as_few_as_was_asked(self):
        trial = Loop(self.FEW, time_limit_s=2.0).run([0.5])
        assert (trial.num_warmup_steps, trial.quality.num_steps) == (1, 3)


class TestBehindItsHost:
    """A device that goes on while its host waits."""

    def test_the_host_waits_for_a_step_of_a_second_ago(self):
        loop = Loop(asynchronous=True, min_time_s=5.0).until("timing")
        first_s = loop.device.now
        for _ in range(15):
            loop.step(0.1)
        waits = [call for call in loop.device.calls if call[0] == "reach"]
        # The first began with nothing queued and is left out; the device is ten steps behind.
        assert [mark for _, mark in waits] == pytest.approx(
            [first_s + 0.1 * number for number in range(2, 2 + len(waits))]
        )
        assert waits
        assert loop.device.now - waits[-1][1] == pytest.approx(1.0)

    def test_steps_that_are_all_alike_are_still_shown(self):
        assert Loop(asynchronous=True).run([0.1, 0.1, 0.1, 0.01]).quality.num_steps >= SHOWN_STEPS
        assert Loop().run([0.1, 0.1, 0.1, 0.01]).quality.num_steps == MIN_SAMPLES
        brief = Loop(asynchronous=True, brief=True).run([0.1, 0.1, 0.1, 0.01])
        assert brief.quality.num_steps == MIN_SAMPLES

    def test_so_long_at_least(self):
        trial = Loop(min_time_s=2.5).run([0.01])
        assert trial.quality.num_steps >= 250
        late = Loop(min_time_s=2.5, deadline_s=1.0).run([0.01])
        assert late.elapsed_s == pytest.approx(1.0, abs=0.02)


class TestWarmup:
    def test_ends_when_settled(self):
        loop = Loop()
        for seconds in (2.0, 0.5, 0.2):
            loop.step(seconds)
            assert loop.window.phase == "warming up"
        loop.step(0.19)
        assert loop.window.phase == "timing"
        trial = loop.run([0.2])
        assert trial.num_warmup_steps == 4
        assert trial.step_s.high == pytest.approx(0.2)  # without the slow first steps

    def test_never_settled(self):
        trial = Loop().run([2.0**-n for n in range(MAX_WARMUP_STEPS)] + [0.1])
        assert trial.num_warmup_steps == MAX_WARMUP_STEPS


class TestTiming:
    def test_precision_stops(self):
        """At the fewest steps, where they are all alike."""
        loop = Loop()
        trial = loop.run()
        assert trial.step_s.num_samples == MIN_SAMPLES
        assert loop.num_steps == MIN_WARMUP_STEPS + MIN_SAMPLES
        assert trial.step_s.median == pytest.approx(0.1)
        assert trial.samples_per_s.median == pytest.approx(80)
        assert trial.input_wait_s.median == pytest.approx(0.01)

    @pytest.mark.parametrize(
        ("options", "times", "fewest", "most"),
        [
            ({"precision": 0.05}, [0.1, 0.104] * 100, MIN_SAMPLES, MIN_SAMPLES),
            ({"precision": 0.001}, [0.1, 0.104] * 100, MAX_CLEAN_SAMPLES, 30),
            ({"time_limit_s": 1.0}, [0.1, 0.2] * 200, MIN_SAMPLES, MAX_CLEAN_SAMPLES - 1),
            ({"time_limit_s": 1.0}, [10.0, 30.0], MIN_SAMPLES, MIN_SAMPLES),
        ],
    )
    def test_narrow_enough_or_out_of_time(self, options, times, fewest, most):
        trial = Loop(**options).run([times[0]] * 3 + times)
        assert fewest <= trial.step_s.num_samples <= most

    @pytest.mark.parametrize(("calm", "num_steps"), [((), 2 * MIN_SAMPLES), ((9,), 40)])
    def test_without_a_clean_step_there_is_no_reason_to_wait_for_one(self, calm, num_steps):
        """Each waits for a core: half of the time and twice the fewest steps, or all patience."""
        reader = WaitsForACore(calm)
        trial = Loop(evidence=reader, time_limit_s=2.0).run()
        assert trial.quality.num_steps == num_steps
        assert trial.quality.num_clean == len(calm)
        assert trial.quality.method == "low quantile"
        assert trial.quality.cpu_s == pytest.approx(0.05)

    def test_no_synchronisation_between_timed_steps(self):
        loop = Loop(min_time_s=5.0).until("timing")
        before = len(loop.device.calls)
        for _ in range(20):
            loop.step()
        assert loop.device.calls[before:] == []

    def test_steps_that_the_device_has_not_finished_are_left_out(self):
        loop = Loop().until("timing")
        loop.device.unfinished.add(loop.device.now + 0.1)
        trial = loop.run()
        assert trial.step_s.num_samples >= MIN_SAMPLES
        assert len(loop.window.samples()) == trial.step_s.num_samples

    @pytest.mark.parametrize(("min_sample_s", "group"), [(0.01, 10), (10.0, MAX_STEPS_A_SAMPLE)])
    def test_short_steps_are_averaged_in_groups_of_a_largest_size(self, min_sample_s, group):
        loop = Loop(min_sample_s=min_sample_s)
        trial = loop.run((0.001,))
        assert trial.step_s.num_samples == MIN_SAMPLES
        assert len(loop.window.samples()) == MIN_SAMPLES * group
        assert trial.step_s.median == pytest.approx(0.001)

    def test_odd_numbers_of_micro_batches_are_left_out(self):
        """Steps of two batches, one now and then of a single batch: it is half as long."""
        loop = Loop().until("timing", 0.2, micro=2)
        while not loop.complete:
            if loop.num_steps % 4 == 2:
                loop.step(0.1, micro=1)
            else:
                loop.step(0.2, micro=2)
        trial = loop.result()
        assert trial.micro_batches == 2
        assert trial.step_s.high == pytest.approx(0.2)
        assert trial.samples_per_s.median == pytest.approx(16 / 0.2)
        assert trial.input_wait_s.median == pytest.approx(0.02)

    def test_several_steps_between_two_fetches(self):
        """A pool of four batches, then as many steps: each has a quarter of the time."""
        loop = Loop()
        trial = loop.run((0.4,), micro=4, parts=4)
        assert trial.micro_batches == 1
        assert trial.step_s.median == pytest.approx(0.1)
        assert trial.samples_per_s.median == pytest.approx(80)
        assert trial.input_wait_s.median == pytest.approx(0.01)
        assert loop.window.samples()[0].num_samples == 8

    def test_samples_of_every_timed_step(self):
        loop = Loop()
        assert loop.run(micro=2).profile is None  # as none was asked for
        samples = loop.window.samples()
        assert {sample.num_samples for sample in samples} == {16}
        assert [sample.input_wait_s for sample in samples] == pytest.approx([0.02] * MIN_SAMPLES)

    def test_secondary_loaders_count_as_waiting_alone(self):
        loop = Loop()
        while not loop.complete:
            loop.window.arrived(99, "shape", 0.05, primary=False)
            loop.step()
        trial = loop.result()
        assert trial.outcome == "ok"
        assert trial.input_wait_s.median == pytest.approx(0.06)


class TestSize:
    @pytest.mark.parametrize(
        ("arrived", "proof", "detail"),
        [(7, "shape", "asked for 8, 7 samples arrived"), (None, "", "could not be read")],
    )
    def test_wrong_or_unreadable_size(self, arrived, proof, detail):
        trial = Loop().run(arrived=arrived, proof=proof)
        assert (trial.outcome, trial.arrived_batch_size) == ("wrong_size", arrived)
        assert detail in trial.detail
        assert not trial.ran

    def test_proof_by_indices(self):
        trial = Loop().run(proof="indices")
        assert (trial.outcome, trial.size_proof) == ("ok", "indices")

    def test_samples_left_out(self):
        """Samples per second count those that arrived, in the steps that were timed."""
        loop = Loop()
        while not loop.complete:
            arrived = (7, 6, 8)[loop.num_steps % 3]
            loop.step(arrived=arrived, proof="shape" if arrived == 8 else "drawn")
        trial = loop.result()
        assert trial.ran
        assert (trial.arrived_batch_size, trial.mean_arrived) == (8, 7)
        assert trial.arrived_share == 7 / 8
        assert trial.samples_per_s.median == pytest.approx(7 / 0.1)
        assert {sample.num_samples for sample in loop.window.samples()} == {6, 7, 8}

    def test_whole_batches_have_no_mean(self):
        trial = Loop().run()
        assert (trial.mean_arrived, trial.arrived_share) == (None, 1)

    def test_the_usual_size_counts(self):
        loop = Loop()
        loop.step(arrived=3)
        assert loop.run().outcome == "ok"

    def test_nothing_arrived(self):
        trial = Loop(FIT).run(micro=0)
        assert trial.outcome == "wrong_size"
        assert (trial.arrived_batch_size, trial.size_proof) == (None, "")


class Counts:
    """Counts 10 operations for each micro-batch that its step took."""

    def __init__(self, steps):
        self.steps = steps

    def start(self):
        pass

    forget = abandon = start

    def finish(self):
        micro = self.steps.pop(0)
        return StepFlops(forward=10 * micro, backward=0, products=0, convolutions=0, by_dtype={})


class TestCounted:
    @pytest.mark.parametrize(
        ("steps", "forward"),
        [([1, 4], 40), ([4], 40), ([1, 2, 1], None)],
        ids=["the first ends an epoch", "a usual one", "all others"],
    )
    def test_a_step_of_as_many_batches_as_most(self, steps, forward):
        """A remainder at the end of an epoch is a step too, with fewer operations."""
        counted = list(steps)
        loop = Loop(flops=lambda: Counts(counted)).until("counting", micro=4)
        while not loop.complete:
            loop.step(micro=counted[0])
        trial = loop.result()
        assert not counted
        assert (trial.flops.forward if trial.flops else None) == forward
        assert ("flops" in trial.unavailable) is (forward is None)


class TestProfile:
    def with_profiler(self, fails_at="", **options):
        device = Device()
        profiler = Profiler(device, fails_at)

        def made():
            if fails_at == "made":
                raise RuntimeError("no profile")
            return profiler

        return Loop(device=device, profiler=made, **options), profiler

    def test_memory_is_read_before_the_profiler_starts(self):
        loop, _ = self.with_profiler()
        trial = loop.run()
        calls = [call for call in loop.device.calls if call in ("memory", "start", "finish")]
        assert calls == ["memory", "start", "finish"]
        assert trial.profile.trace == "a.json"
        assert trial.step_s.num_samples == MIN_SAMPLES

    @pytest.mark.parametrize("then", ["counted", "profiled", "over"])
    def test_it_is_said_when_the_timed_steps_are_over(self, then):
        """At once: energy that a driver counts until later holds what is no timed step."""
        device, said = Device(), []
        options = {
            "counted": {"flops": lambda: Counts([1])},
            "profiled": {"profiler": lambda: Profiler(device)},
            "over": {},
        }[then]
        loop = Loop(
            device=device,
            timed=lambda: said.append((device.now, device.calls[-1], loop.window.num_steps)),
            **options,
        )
        before = device.now
        loop.run()
        timed = loop.num_steps - {"counted": 1, "profiled": 2, "over": 0}[then]
        assert said == [(pytest.approx(before + 0.1 * timed), "synchronize", MIN_SAMPLES)]

    def test_profiled_steps_are_not_timed(self):
        loop, _ = self.with_profiler()
        loop.until("profiling")
        loop.step(5.0)
        assert loop.step(5.0)
        trial = loop.result()
        assert trial.step_s.high == pytest.approx(0.1)
        assert len(loop.window.samples()) == MIN_SAMPLES

    @pytest.mark.parametrize("fails_at", ["made", "start", "step", "finish"])
    def test_a_failed_profiler_does_not_fail_the_trial(self, fails_at):
        loop, profiler = self.with_profiler(fails_at)
        trial = loop.run()
        assert trial.outcome == "ok"
        assert trial.step_s.num_samples == MIN_SAMPLES
        assert trial.memory is not None
        assert trial.profile.trace is None
        assert "RuntimeError: no profile" in trial.profile.unavailable["trace"]
        # One that had started is stopped, so that it does not slow the next trial.
        assert profiler.abandoned == (fails_at in {"step", "finish"})

    @pytest.mark.parametrize(("limit", "profiled"), [(999, False), (1000, True), (None, True)])
    def test_left_out_where_the_memory_is_nearly_full(self, limit, profiled):
        loop, _ = self.with_profiler(profile_below_bytes=limit)
        trial = loop.run()
        assert (trial.profile.trace is not None) == profiled
        assert profiled or "nearly full" in trial.profile.unavailable["trace"]

    def test_abandon(self):
        loop, profiler = self.with_profiler()
        loop.window.abandon()
        assert not profiler.abandoned
        loop.until("profiling")
        loop.window.abandon()
        assert profiler.abandoned


class TestBursts:
    """Four workers hand over four batches at a time: one step waits for them, three do not.

    So the steps of a public ImageNet script on an H100, whose loader makes 1,100 images a second.
    """

    WORKERS, WAIT_S, STEP_S = 4, 0.70, 0.057
    MEAN_S = WAIT_S / WORKERS + STEP_S

    def train(self, time_limit_s, *, queued=0, waits_s=(WAIT_S,), **options):
        loop = Loop(
            num_workers=self.WORKERS, time_limit_s=time_limit_s, asynchronous=True, **options
        )
        while not loop.complete:
            burst, place = divmod(loop.num_steps - queued, self.WORKERS)
            wait_s = 0.0 if loop.num_steps < queued or place else waits_s[burst % len(waits_s)]
            loop.step(self.STEP_S + wait_s, wait_s=wait_s)
        return loop.result()

    @pytest.mark.parametrize("time_limit_s", [1.0, 3.0, 5.0, 20.0])
    def test_steps_cost_their_share_of_the_wait(self, time_limit_s):
        trial = self.train(time_limit_s)
        assert trial.step_s.median == pytest.approx(self.MEAN_S)
        assert trial.step_s.high == pytest.approx(trial.step_s.low)
        assert trial.input_wait_s.median == pytest.approx(self.WAIT_S / self.WORKERS)
        assert trial.samples_per_s.median == pytest.approx(8 / self.MEAN_S)
        assert trial.elapsed_s < max(2 * time_limit_s, 4.0) + 3 * self.WORKERS * self.MEAN_S

    def test_bursts_that_differ(self):
        """The interval is that of whole bursts, not of their long and short steps."""
        trial = self.train(7.5, waits_s=(0.7, 0.55, 0.8, 0.75, 0.6))
        assert trial.step_s.median == pytest.approx(self.MEAN_S, rel=0.05)
        assert trial.step_s.relative_half_width < 0.2

    def test_batches_that_were_ready_are_used_up_first(self):
        trial = self.train(5.0, queued=2 * self.WORKERS)
        assert trial.step_s.median == pytest.approx(self.MEAN_S)

    @pytest.mark.parametrize(
        ("full", "num_warmup", "filled_after"),
        [
            ([True], MIN_WARMUP_STEPS, 1),
            ([False, False, True], MIN_WARMUP_STEPS, 3),
            ([False], 2 * WORKERS, None),
            ([True, False], 2 * WORKERS, None),  # the first step was long
        ],
    )
    def test_a_queue_that_stays_full_need_not_be_used_up(self, full, num_warmup, filled_after):
        states = itertools.chain(full, itertools.repeat(full[-1]))
        loop = Loop(num_workers=self.WORKERS, full=lambda: next(states))
        trial = loop.run([0.3], wait_s=0.0)
        assert (trial.num_warmup_steps, trial.filled_after) == (num_warmup, filled_after)

    def test_no_whole_burst_was_timed(self):
        trial = self.train(1.0, deadline_s=2.0)
        assert trial.step_s is not None
        assert trial.step_s.median > self.STEP_S

    def test_workers_that_keep_up_cost_nothing(self):
        """Steps that wait for nothing are judged one by one, however many workers there are."""
        loop = Loop(num_workers=16, time_limit_s=2.0)
        trial = loop.run([0.3], wait_s=0.0)
        assert trial.step_s.median == pytest.approx(0.3)
        assert trial.quality.num_steps < 16
