"""How a watched training may end: each way leaves a record, and passes on what happened."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from batchadvisor import ProfilingCallback
from batchadvisor.advisor.advise import advise
from batchadvisor.callback.devices import TorchProbe
from batchadvisor.callback.recorder import Recorder
from batchadvisor.probes.windows.gradient_norms import NoiseMeter
from batchadvisor.session.recording.store import read_record

from ..virtual_gpu.device import Clock
from . import loops

HERE = Path(__file__).parent


def ran(folder, *arguments):
    """A training in a process of its own."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


class TestEndings:
    def test_an_exception_passes_unchanged(self, tmp_path, capfd):
        error = ValueError("mine\nof two lines")

        def each(number):
            if number == 25:
                raise error

        with pytest.raises(ValueError, match="mine") as caught:
            loops.watched(tmp_path, each=each)
        assert caught.value is error
        assert error.__cause__ is None
        assert error.__context__ is None
        record = read_record(tmp_path)
        assert record.state == "failed"
        assert record.faults[0].detail == "ValueError: mine"
        assert record.observed.num_steps == 7 + 5
        assert record.trials[0].outcome == "ok"
        assert "ValueError: mine" in capfd.readouterr().err

    def test_out_of_memory(self, tmp_path, capfd):
        said = "CUDA out of memory. Tried to allocate 2.00 GiB"
        error = torch.OutOfMemoryError(f"{said}\na second line")

        def each(number):
            if number == 21:
                raise error

        with pytest.raises(torch.OutOfMemoryError) as caught:
            loops.watched(tmp_path, each=each, profile=False)
        assert caught.value is error
        record = read_record(tmp_path)
        assert record.state == "failed"
        refused = record.trials[-1]
        assert (refused.batch_size, refused.outcome) == (8, "out_of_memory")
        assert refused.detail == f"OutOfMemoryError: {said}"
        text = capfd.readouterr().err
        assert text.startswith("Batch size 8 ran out of memory; until then ")
        assert record.trials[0].step_s is not None
        before, refused = record.explained.held
        assert (before.step, before.refused, before.line) == (3, False, "")
        assert refused.refused
        assert refused.line.startswith("callback/test_endings.py:")
        page = (tmp_path / "memory.html").read_text()
        assert "Tensors as memory was refused" in page
        assert str(tmp_path / "memory.html") in text
        assert "by the host's clock" in text

    def test_memory_that_a_validation_was_refused(self, tmp_path):
        """It says nothing of the size that trains, nor of the short batch before it."""
        prof = ProfilingCallback(tmp_path, profile=False, quiet=True)
        with contextlib.suppress(torch.OutOfMemoryError), prof:
            loops.train(prof, epochs=1)
            raise torch.OutOfMemoryError("CUDA out of memory.")
        record = read_record(tmp_path)
        assert record.stop_reason.startswith("out of memory: ")
        assert [(trial.batch_size, trial.outcome) for trial in record.trials] == [(8, "ok")]
        assert prof.advice.headline.startswith("Batch size 8 as it ran")

    @pytest.mark.slow
    def test_memory_that_the_kernel_refuses(self, tmp_path):
        """A real refusal: the growing sizes before it keep their peaks, the limit is the room."""
        script = tmp_path / "refused.py"
        script.write_text(
            "import resource, torch\n"
            "from batchadvisor import ProfilingCallback\n"
            "net, row = torch.nn.Linear(256, 1024), torch.randn(1, 256)\n"
            "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
            "used = int(open('/proc/self/statm').read().split()[5]) * resource.getpagesize()\n"
            "resource.setrlimit(resource.RLIMIT_DATA, (used + 2**28, -1))\n"
            "sizes = [64] * 12 + [4096] * 12 + [1 << 17]\n"
            "with ProfilingCallback('log', profile_after=3) as prof:\n"
            "    for x in prof.watch(row.expand(one, -1) for one in sizes):\n"
            "        prof._watch.recorder._saver.wait()  # a save imports a lot\n"
            "        net(x).square().mean().backward()\n"
            "        optimizer.step()\n"
            "        optimizer.zero_grad()\n"
            "        prof.step()\n"
        )
        done = ran(tmp_path, script)
        assert done.returncode == 1
        assert "can't allocate memory" in done.stderr.splitlines()[-1]
        assert "ended        out of memory: RuntimeError" in done.stderr
        # About how many, where the readings of two sizes lie outside the noise.
        assert "estimate: memory leaves room for" in " ".join(done.stderr.split()), done.stderr
        record = read_record(tmp_path / "log")
        assert [(trial.batch_size, trial.outcome) for trial in record.trials] == [
            (64, "ok"),
            (4096, "ok"),
            (1 << 17, "out_of_memory"),
        ]
        small, large, _ = record.trials
        assert "steps of another batch size (64)" in large.unavailable["profile"]
        assert small.memory.peak_bytes < large.memory.peak_bytes
        assert record.device.capacity_source == "RLIMIT_DATA of the process"
        assert large.memory.peak_bytes < record.device.capacity_bytes < 2**30
        assert advise(record).recommended.batch_size in (64, 4096)
        refused = record.explained.held[-1]
        assert refused.line.endswith("refused.py:11")
        assert "Tensors as memory was refused" in (tmp_path / "log/memory.html").read_text()

    def test_a_short_batch_that_fails(self, tmp_path):
        """One sample into BatchNorm in training mode raises; the advice names the cause."""
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(33, 10, generator=generator)
        y = torch.zeros(33, dtype=torch.long)
        data = torch.utils.data.TensorDataset(x, y)
        loader = torch.utils.data.DataLoader(data, batch_size=8)
        with (
            pytest.raises(ValueError, match="more than 1 value"),
            ProfilingCallback(tmp_path, quiet=True) as prof,
        ):
            loops.train(prof, loader=loader)
        crash = next(finding for finding in prof.advice.findings if finding.rule == "tail.crash")
        assert crash.severity == "error"
        assert "1 samples" in crash.message or "1 sample" in crash.message

    def test_ctrl_c(self, tmp_path):
        def each(number):
            if number == 20:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            loops.watched(tmp_path, each=each, quiet=True)
        assert read_record(tmp_path).state == "interrupted"

    def test_a_loop_that_pauses_and_is_left_early(self, tmp_path, monkeypatch):
        clock = Clock()
        monkeypatch.setattr(time, "perf_counter_ns", clock)
        with ProfilingCallback(tmp_path, quiet=True, profile=False) as prof:
            for place, _ in enumerate(prof.watch(loops.data())):
                clock.pass_ms(10)
                prof.step()
                if place in (5, 8):
                    prof.pause()
                    clock.pass_ms(300)  # a validation
                if place == 10:
                    break
            clock.pass_ms(300)  # what follows a break belongs to no step, as what follows a pause
        assert prof.record.observed.num_steps == 11
        assert prof.record.observed.num_samples == 88
        assert prof.record.trials[0].step_s.high == pytest.approx(0.01)

    @pytest.mark.slow
    def test_kill_9(self, tmp_path):
        script = tmp_path / "killed.py"
        script.write_text(
            "import os, signal, sys\n"
            f"sys.path.insert(0, {str(HERE)!r})\n"
            "import loops\n"
            "from batchadvisor import ProfilingCallback\n"
            "with ProfilingCallback('log', profile=False) as prof:\n"
            "    def each(number):\n"
            "        if number == 600:\n"
            "            prof._watch.recorder._saver.wait()\n"
            "            os.kill(os.getpid(), signal.SIGKILL)\n"
            "    loops.train(prof, each=each, epochs=1000)\n"
        )
        done = ran(tmp_path, script)
        assert done.returncode == -signal.SIGKILL
        record = read_record(tmp_path / "log")
        assert record.state == "running"
        assert 1 <= record.observed.num_steps <= 330
        assert advise(record).recommended.batch_size == 8
        assert [path.name for path in (tmp_path / "log").glob(".record*")] == []

    @pytest.mark.slow
    def test_a_million_steps_hold_constant_memory(self, tmp_path):
        """The whole callback: steps, epochs, saves, scalars; not the core alone."""
        code = (
            "import gc, itertools, tracemalloc, torch\n"
            "from batchadvisor import ProfilingCallback\n"
            "from batchadvisor.probes.devices.host import status_bytes\n"
            "batch = torch.zeros(32, 2), torch.zeros(32)\n"
            "short = torch.zeros(7, 2), torch.zeros(7)\n"
            "with ProfilingCallback('log', profile=False, quiet=True, batch_size=32) as prof:\n"
            "    def steps(num):\n"
            "        for _ in range(num // 1000):\n"
            "            epoch = itertools.chain(itertools.repeat(batch, 999), [short])\n"
            "            for one in prof.watch(epoch):\n"
            "                prof.step()\n"
            "    def traced(num):\n"
            "        tracemalloc.start(); steps(num); gc.collect()\n"
            "        held = tracemalloc.get_traced_memory()[0]; tracemalloc.stop()\n"
            "        return held\n"
            "    steps(100_000)\n"
            "    prof._watch.recorder._saver.wait()  # the first save imports what writes events\n"
            "    first, resident = traced(20_000), status_bytes('VmRSS')\n"
            "    steps(860_000)\n"
            "    last, grown = traced(20_000), status_bytes('VmRSS') - resident\n"
            "print(last - first, grown)\n"
        )
        done = ran(tmp_path, "-c", code)
        assert done.returncode == 0, done.stderr
        held, grown = map(int, done.stdout.split())
        assert held < 100_000
        assert grown < 4_000_000, grown
        observed = read_record(tmp_path / "log").observed
        assert (observed.num_steps, observed.num_epochs) == (1_000_000, 1000)
        assert observed.num_samples == 1000 * (999 * 32 + 7)

    def test_a_record_that_cannot_be_finished(self, tmp_path, monkeypatch, capfd):
        """Said, and everything is let go: the folder is free for another run."""

        def broken():
            raise RuntimeError("the device is gone")

        with ProfilingCallback(tmp_path, profile=False) as prof:
            loops.train(prof)
            monkeypatch.setattr(prof._watch.recorder, "_read_traces", broken)
        assert "could not be finished: RuntimeError: the device is gone" in capfd.readouterr().err
        assert prof.record.state == "failed"
        assert read_record(tmp_path).state == "failed"  # not: it runs
        _, _, again = loops.watched(tmp_path, profile=False, quiet=True)
        assert again.record.state == "finished"

    def test_an_exception_passes_where_no_record_can_be_made(self, tmp_path, monkeypatch):
        def broken(*_, **__):
            raise RuntimeError("the device is gone")

        def each(number):
            if number == 25:
                monkeypatch.setattr(Recorder, "record", broken)
                raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            loops.watched(tmp_path, each=each, profile=False, quiet=True)

    def test_a_device_that_gives_back_no_norms(self, tmp_path, monkeypatch):
        """After an assertion of a kernel every value on the device is out of reach."""

        def broken(_):
            raise RuntimeError("CUDA error: device-side assert triggered")

        monkeypatch.setattr(NoiseMeter, "found", broken)
        *_, prof = loops.watched(tmp_path, profile=False, quiet=True, noise_scale=True)
        assert prof.record.state == "finished"
        assert "RuntimeError" in prof.record.observed.unavailable["noise_scale"]

    @pytest.mark.parametrize("since", [1, 25])
    def test_a_device_that_tells_its_memory_no_more(self, tmp_path, monkeypatch, since):
        """After an assertion of a kernel: the record has the error and the steps before it."""

        def broken(_):
            raise RuntimeError("CUDA error: device-side assert triggered\nmore of it")

        def each(number):
            if number == since:
                monkeypatch.setattr(TorchProbe, "read_memory", broken)
            if number == 25:
                raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            loops.watched(tmp_path, each=each, profile=False, quiet=True)
        record = read_record(tmp_path)
        assert record.faults[0].detail == "ValueError: mine"
        assert record.doubts[-1].endswith("RuntimeError: CUDA error: device-side assert triggered")
        assert record.trials[0].step_s is not None
        if since == 1:
            assert record.trials[0].unavailable["memory"] == "its peak was not read"

    def test_a_loop_that_goes_on_afterwards(self, tmp_path):
        """The record stays the one that was finished, and no window is opened any more."""
        with ProfilingCallback(tmp_path, quiet=True, profile_after=3, profile_every=22) as prof:
            loader = prof.watch(loops.data())
            loops.train(prof, loader=loader)
        loops.train(prof, loader=loader)
        assert not prof._watch.recorder.windows.active
        prof._watch.recorder._saver.wait()
        record = read_record(tmp_path)
        assert (record.state, record.observed.num_steps) == ("finished", loops.TOTAL_STEPS)

    def test_a_callback_that_stops_in_its_window(self, tmp_path, monkeypatch):
        """Its profiler stops with it, and does not record the rest of the training."""
        running = []

        def broken(self):
            if self.windows is not None and self.windows.active:
                raise RuntimeError("the counters are gone")
            return 0.0

        monkeypatch.setattr(Recorder, "save", broken)
        *_, prof = loops.watched(
            tmp_path,
            profile_after=3,
            quiet=True,
            each=lambda _: running.append(torch.autograd._profiler_enabled()),
        )
        assert not any(running[10:])
        assert "stopped measuring" in prof.record.doubts[0]
        assert "stopped measuring" in prof.record.trials[0].unavailable["profile"]

    def test_a_slow_disk_holds_no_step(self, tmp_path, monkeypatch):
        """Each save lasts until the last step is over: none could that a step waited for."""
        threads, ended = [], []
        over = threading.Event()
        native = os.fsync

        def slow(descriptor):
            threads.append(threading.current_thread())
            ended.append(over.wait(60 if all(ended) else 0))
            native(descriptor)

        with ProfilingCallback(tmp_path, quiet=True, profile=False, scalars=False) as prof:
            monkeypatch.setattr("os.fsync", slow)
            for _ in prof.watch([torch.ones(4, 3)] * 120):
                time.sleep(0.01)
                prof.step()
            in_loop = list(threads)
            over.set()
        assert in_loop
        assert threading.main_thread() not in in_loop
        assert all(ended)
        assert prof.record.observed.num_steps == 120

    def test_a_save_comes_at_least_once_a_minute(self, tmp_path, monkeypatch):
        """Also where one is dear, and in virtual time; the record on disk is never older."""
        clock = Clock()
        monkeypatch.setattr(time, "perf_counter_ns", clock)
        ages = []
        with ProfilingCallback(tmp_path, quiet=True, profile=False, scalars=False) as prof:
            recorder = prof._watch.recorder
            for number in range(2000):
                for _ in prof.watch([torch.ones(4, 3)]):
                    clock.pass_ms(1000)
                    prof.step()
                recorder._saver.cost_s = 0.3
                recorder._saver.wait()
                if number > 2:
                    ages.append(number - read_record(tmp_path).observed.num_steps)
        assert 30 < max(ages) <= 61

    def test_a_disk_that_is_full(self, tmp_path, fill_disk, capfd):
        with ProfilingCallback(tmp_path / "log", profile=False) as prof:
            fill_disk()
            losses, _ = loops.train(prof)
        assert losses == loops.train()[0]
        assert "could not be written: No space left" in capfd.readouterr().err
