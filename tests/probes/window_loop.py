"""A loop of planted steps around a window, for its tests."""

import itertools

import pytest
from batchadvisor.probes.windows.window import Window
from batchadvisor.records import Memory, Profile, TrialRequest


class Device:
    """Reads the clock of the test, and keeps a list of what it was asked."""

    def __init__(self):
        self.now = 0.0
        self.calls = []
        self.unfinished = set()

    def clock(self):
        return self.now

    def reset_peaks(self):
        self.calls.append("reset")

    def read_memory(self):
        self.calls.append("memory")
        return Memory(peak_bytes=1000, peak_source="on paper")

    def synchronize(self):
        self.calls.append("synchronize")

    def mark(self):
        return self.now

    def reach(self, mark):
        self.calls.append(("reach", mark))

    def elapsed_s(self, start, end):
        return None if end in self.unfinished else end - start


class Profiler:
    """Complete after two steps, or failing at one of its own steps."""

    def __init__(self, device, fails_at=""):
        self._device = device
        self._fails_at = fails_at
        self._num_steps = 0
        self.abandoned = False

    def _do(self, what):
        self._device.calls.append(what)
        if what == self._fails_at:
            raise RuntimeError("no profile")

    def start(self):
        self._do("start")

    def step(self):
        self._do("step")
        self._num_steps += 1
        return self._num_steps == 2

    def finish(self):
        self._do("finish")
        return Profile(trace="a.json", num_steps=2)

    def abandon(self):
        self._do("abandon")
        self.abandoned = True


REQUEST = TrialRequest(batch_size=8, kind="timed")
MIN_SAMPLES = REQUEST.min_timed_steps
MIN_WARMUP_STEPS = REQUEST.min_warmup_steps
MOST_STEPS = 3000


class Loop:
    """A training loop around a window.

    `times` are seconds per step, the last repeated; a step takes `micro` batches.
    """

    def __init__(self, request=REQUEST, device=None, **options):
        self.device = device or Device()
        self.window = Window(request, self.device, clock=self.device.clock, **options)
        self.window.resume()
        self.num_steps = 0
        self.complete = False

    def step(self, seconds=0.1, *, micro=1, arrived=8, proof="shape", wait_s=0.01, parts=1):
        for _ in range(micro):
            self.window.arrived(arrived, proof, wait_s, primary=True)
        self.device.now += seconds
        self.num_steps += 1
        if self.num_steps > MOST_STEPS:
            pytest.fail("the window does not end")
        self.complete = self.window.boundary(parts)
        if not self.complete:
            self.window.resume()
        return self.complete

    def until(self, phase, *args, **rest):
        """Makes steps until this phase begins."""
        while self.window.phase != phase:
            self.step(*args, **rest)
        return self

    def run(self, times=(0.1,), **rest):
        for seconds in itertools.chain(times, itertools.repeat(times[-1])):
            if self.step(seconds, **rest):
                return self.result()
        return None

    def result(self):
        return self.window.result(5, 2)
