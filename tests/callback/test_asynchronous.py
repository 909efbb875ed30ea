"""Steps of a device that runs behind the host: their time is never that of the host's steps."""

from __future__ import annotations

import itertools
import statistics

import pytest
import torch
from batchadvisor.callback.device_times import Pacer, Timeline
from batchadvisor.callback.event_buffer import EventBuffer
from batchadvisor.callback.step_counter import NEVER, Core
from batchadvisor.callback.step_kinds import MAX_STRETCHES, MIN_STRETCH_STEPS, Stretch, Stretches
from batchadvisor.session.recording.store import read_record

from ..virtual_gpu.device import VirtualGpu
from .asynchronous import BATCH_SIZE, watched

MS = 1_000_000


@pytest.fixture
def gpu():
    return VirtualGpu()


def even(num_steps):
    return [[BATCH_SIZE] * num_steps]


def check(prof, truth_s, *, within=0.02):
    """Samples per second and seconds of a step within 2 % of the planted truth."""
    (trial,) = prof.record.trials
    assert trial.step_s.median == pytest.approx(truth_s, rel=within)
    assert trial.samples_per_s.median == pytest.approx(BATCH_SIZE / truth_s, rel=within)
    assert trial.step_s.low <= trial.step_s.median <= trial.step_s.high
    return trial


class TestWholeRuns:
    @pytest.mark.parametrize("graph", [False, True], ids=["kernels", "graphs"])
    @pytest.mark.parametrize("item_every", [None, 1, 10, 50])
    def test_host_steps_of_5_ms_and_device_steps_of_50(
        self, gpu, monkeypatch, tmp_path, item_every, graph
    ):
        prof, truth_s = watched(
            gpu, monkeypatch, tmp_path, epochs=even(400), item_every=item_every, graph=graph
        )
        assert 0.049 < truth_s < 0.056
        trial = check(prof, truth_s)
        assert trial.step_s.num_samples > 10
        assert gpu.num_waits == (400 // item_every if item_every else 0)  # ours waits for nothing

    @pytest.mark.parametrize(
        ("num_steps", "depth", "options"),
        [(20, None, {}), (60, None, {}), (200, 40, {}), (100, None, {"optimizer": None})],
        ids=["short", "less short", "a full queue", "no optimizer is shown"],
    )
    def test_other_runs(self, monkeypatch, tmp_path, num_steps, depth, options):
        """Without an optimizer too: a GPU was started, so the host's clock is not believed."""
        gpu = VirtualGpu() if depth is None else VirtualGpu(depth=depth)
        prof, truth_s = watched(gpu, monkeypatch, tmp_path, epochs=even(num_steps), **options)
        check(prof, truth_s)
        assert prof.record.device.kind == "cuda"

    @pytest.mark.parametrize("fetch_ms", [0.0, 30.0])
    def test_a_host_that_is_slower_than_its_device(self, gpu, monkeypatch, tmp_path, fetch_ms):
        prof, truth_s = watched(
            gpu, monkeypatch, tmp_path, epochs=even(300), host_ms=20, device_ms=4, fetch_ms=fetch_ms
        )
        trial = check(prof, truth_s)
        assert truth_s == pytest.approx((20 + fetch_ms) / 1e3, rel=0.01)
        assert trial.input_wait_s.median == pytest.approx(fetch_ms / 1e3, rel=0.01)

    @pytest.mark.parametrize("num_batches", [4, 13, 40])
    @pytest.mark.parametrize("pause_ms", [0, 700])
    def test_epochs_with_a_short_end(self, gpu, monkeypatch, tmp_path, num_batches, pause_ms):
        """Neither the short batch nor what lies between the epochs is in a stretch."""
        ends = range(num_batches + 1, 100 * num_batches, num_batches + 1)

        def each(number):
            if number in ends:
                gpu.item()
                gpu.clock.pass_ms(pause_ms)

        prof, _ = watched(
            gpu,
            monkeypatch,
            tmp_path,
            epochs=[[BATCH_SIZE] * num_batches + [4]] * 12,
            device_ms=lambda size: 50 * size / BATCH_SIZE,
            each=each,
        )
        trial = check(prof, 0.050)
        assert trial.tail.num_samples == 4

    def test_each_size_of_a_schedule(self, gpu, monkeypatch, tmp_path):
        prof, _ = watched(
            gpu,
            monkeypatch,
            tmp_path,
            epochs=[[16] * 100, [32] * 100, [64] * 100],
            device_ms=lambda size: 10 + size / 2,
            item_every=10,
        )
        times = {trial.batch_size: trial.step_s.median for trial in prof.record.trials}
        assert times == {
            16: pytest.approx(0.018, rel=0.03),  # reading a number costs the device a moment
            32: pytest.approx(0.026, rel=0.03),
            64: pytest.approx(0.042, rel=0.03),
        }

    def test_the_record_says_over_how_many_steps(self, gpu, monkeypatch, tmp_path):
        prof, _ = watched(gpu, monkeypatch, tmp_path, epochs=even(400), item_every=10)
        record = prof.record
        (seen,) = record.observed.stretches
        assert seen.batch_size == BATCH_SIZE
        assert seen.num_steps >= MIN_STRETCH_STEPS
        assert seen.num_stretches == record.trials[0].step_s.num_samples
        text = " ".join(str(prof).split())
        assert f"by the device's events, in {seen.num_stretches} stretches of " in text
        assert f"of {seen.num_steps} steps" in text
        (said,) = (one for one in prof.advice.findings if one.rule == "callback.stretches")
        assert f"the mean of a stretch of {seen.num_steps} steps" in said.message
        assert record.discovery.native_step_s is None
        assert "runs behind the host" in record.discovery.unavailable["native_step_s"]

    def test_too_few_steps_have_no_time(self, gpu, monkeypatch, tmp_path):
        prof, _ = watched(gpu, monkeypatch, tmp_path, epochs=even(3))
        (trial,) = prof.record.trials
        assert trial.step_s is None
        assert "runs behind the host" in trial.unavailable["step_s"]
        assert "not timed: the device runs behind the host" in " ".join(str(prof).split())

    def test_times_stay_after_memory_was_refused(self, gpu, monkeypatch, tmp_path):
        numbers = itertools.count(1)

        def device_ms(_):
            if next(numbers) == 120:
                gpu.allocate(gpu.capacity_bytes + 1)
            return 50.0

        with pytest.raises(torch.OutOfMemoryError):
            watched(gpu, monkeypatch, tmp_path, epochs=even(200), device_ms=device_ms)
        ran, refused = read_record(tmp_path).trials
        assert refused.outcome == "out_of_memory"
        assert ran.step_s.median == pytest.approx(0.050, rel=0.02)
        assert ran.step_s.num_samples > 5

    def test_a_graph_that_is_being_captured_is_left_alone(self, gpu, monkeypatch, tmp_path):
        def each(number):
            gpu.capturing = 100 <= number < 120
            events.append(gpu.num_events)

        events = []
        prof, truth_s = watched(gpu, monkeypatch, tmp_path, epochs=even(300), each=each)
        check(prof, truth_s)
        assert events[101] == events[118]
        assert events[118] < events[-1]

    def test_a_device_that_fails_ends_the_timing_and_not_the_training(
        self, gpu, monkeypatch, tmp_path
    ):
        def each(number):
            if number == 200:
                monkeypatch.setattr("torch.cuda.Event", broken)

        def broken(**_):
            raise RuntimeError("CUDA error: device-side assert triggered\nmore of it")

        prof, truth_s = watched(
            gpu, monkeypatch, tmp_path, epochs=even(300), each=each, item_every=5
        )
        check(prof, truth_s)
        assert prof.record.observed.num_steps == 300
        assert "clock failed: RuntimeError: CUDA error" in prof.record.doubts[0]


class TestStretches:
    def test_few_are_kept_and_none_is_lost(self):
        stretches = Stretches()
        for place in range(10_000):
            stretches.add(Stretch(2, 100 + place % 7, 1))
        whole = stretches.whole
        assert MAX_STRETCHES // 2 <= len(whole) < MAX_STRETCHES
        assert stretches.num_steps == 20_000
        assert sum(stretch.steps for stretch in whole) == pytest.approx(20_000, rel=0.03)
        assert stretches.usual_steps >= 100
        assert statistics.median(
            stretch.elapsed_ns / stretch.steps for stretch in whole
        ) == pytest.approx(51.5)

    def test_a_stretch_has_several_steps(self):
        stretches = Stretches()
        for _ in range(MIN_STRETCH_STEPS - 1):
            stretches.add(Stretch(1, 10, 0))
        assert stretches.whole == [Stretch(MIN_STRETCH_STEPS - 1, 10 * (MIN_STRETCH_STEPS - 1), 0)]
        stretches.add(Stretch(1, 10, 0))
        stretches.add(Stretch(1, 99, 0))
        assert stretches.whole == [Stretch(MIN_STRETCH_STEPS, 10 * MIN_STRETCH_STEPS, 0)]


class Quiet:
    def boundary(self, core, now_ns):
        core.due_ns = NEVER

    def pause(self, core):
        pass

    def growth(self, core):
        pass


@pytest.mark.parametrize("taped", [False, True])
def test_a_device_without_events_is_waited_for_now_and_then(taped):
    """Marks that wait: both ends of a stretch are moments at which the device was idle."""
    gpu = VirtualGpu()
    clock = gpu.clock

    def mark():
        gpu.synchronize()
        return clock() / 1e9

    core = Core(Quiet(), clock=clock)
    core.pacer = Pacer(
        Timeline("waited for", 1000 * MS, mark, lambda start, end: end - start), core.book_piece
    )
    core.mark_ns = 0
    told = EventBuffer(core, clock) if taped else core
    told.on_run_begin()
    for number in range(1000):
        told.on_step_begin()
        told.on_microbatch(8)
        for _ in range(10):
            clock.pass_ms(0.5)
            gpu.launch(5)
        if number % 10 == 0:
            gpu.item()
        told.on_step_end()
    told.on_run_end()
    waited = gpu.num_waits - 100
    times = [
        stretch.elapsed_ns / stretch.steps / MS for stretch in core.kinds[8, 1].stretches.whole
    ]
    assert statistics.median(times) == pytest.approx(50.05, rel=0.02)
    assert 5 < waited < 60
