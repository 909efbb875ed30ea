"""A processor on paper that others share: it drives the real windows with a clock of its own.

Step times follow a law of the batch size. What comes on top (stalls, drift, slow phases, busy
neighbours, threads that spin, slow steps of the script's own) is drawn for each seed, with what
the kernel would count about it, or without.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass, field
from statistics import median

import msgspec
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.search.cost import end_s
from batchadvisor.advisor.search.next_trial import Done, next_trial
from batchadvisor.probes.windows.interleaved_window import TurnsWindow
from batchadvisor.probes.windows.step_evidence import Reading
from batchadvisor.probes.windows.window import Window
from batchadvisor.records import Goal, Memory
from batchadvisor.session.run import CPU_PRECISION, MAX_TIMED_S, MIN_SAMPLE_S, TIMED_SHARE

from ..on_paper import GIB, discovery_of, record_of
from .machine import MAX_TRIALS, Result

TICK_S = 0.01
"""The kernel counts stolen time in these."""
NUM_SAMPLES = 50_000
SLOWER = 0.01
"""A larger size than the script's own is wrong if it is slower by more than this."""


@dataclass(frozen=True)
class Law:
    """Seconds per quiet step: `fixed + slope * size`, more beyond a cache, the same up to a width.

    Attributes:
        width: sizes up to this take the same time.
        cache: from this size on a sample costs `beyond` times as much.
    """

    fixed_s: float
    slope_s: float
    width: int = 0
    cache: int | None = None
    beyond: float = 1.0

    def step_s(self, size):
        seconds = self.fixed_s + self.slope_s * max(size, self.width)
        if self.cache is not None and size > self.cache:
            seconds += self.slope_s * (self.beyond - 1) * (size - self.cache / 2)
        return seconds

    def throughput(self, size):
        """Samples per second of a quiet machine."""
        return size / self.step_s(size)


@dataclass(frozen=True)
class Disturbances:
    """What comes on top of the law; all off by default.

    Attributes:
        noise: relative standard deviation of a step.
        stalled: share of steps that stall for 1 to 3 s.
        stalls_a_s: the same for each second that passes: long steps are hit more often.
        silent: stalls leave no trace in any counter.
        drift, drift_s: how much slower the machine gets in the worst moment, and the period.
        slow, slow_s: factor of phases without any evidence, and how long one lasts.
        neighbours: busy processes for each core; a step waits for a core that much longer.
        spin: threads that spin against each other: factor of all times.
        spin_s: what they add to each step, whatever its size: barriers, one for each operator.
        shares, shares_s: both threads share one core for so much of the time, so long at a time;
            what they spin then takes `shared_s` of each step, whatever its size.
        every, periodic: each so many steps the script's own takes so much longer.
        counted: the kernel counts what threads wait.
    """

    noise: float = 0.01
    stalled: float = 0.0
    stalls_a_s: float = 0.0
    silent: bool = False
    drift: float = 0.0
    drift_s: float = 60.0
    slow: float = 1.0
    slow_s: float = 5.0
    neighbours: float = 0.0
    spin: float = 1.0
    spin_s: float = 0.0
    shares: float = 0.0
    shares_s: float = 5.0
    shared_s: float = 0.5
    every: int = 0
    periodic: float = 0.0
    counted: bool = True

    @property
    def none(self):
        """Whether the machine is quiet; the script's own slow steps are its own."""
        return (
            not (self.stalled or self.stalls_a_s or self.drift or self.neighbours or self.spin_s)
            and not self.shares
            and self.slow == self.spin == 1.0
        )


@dataclass
class Kernel:
    """The clock and the counters; stands for the device and for the reader of evidence too."""

    law: Law
    disturbances: Disturbances
    rng: random.Random
    now_s: float = 0.0
    longest_s: float = 0.0
    num_steps: int = 0
    delay_s: float = 0.0
    stolen_s: float = 0.0
    switches: int = 0
    thread_s: float = 0.0
    process_s: float = 0.0
    size: int = 0
    is_slow: bool = False
    phase_ends_s: float = 0.0
    on_one_core: bool = False
    sharing_ends_s: float = 0.0
    unavailable: dict = field(default_factory=dict)

    def clock(self):
        return self.now_s

    # a window's device

    def reset_peaks(self):
        pass

    def synchronize(self):
        pass

    def read_memory(self):
        return Memory(peak_bytes=GIB + 2**20 * self.size, peak_source="on paper")

    def mark(self):
        return self.now_s

    def elapsed_s(self, start, end):
        return end - start

    # a window's evidence

    def renew(self):
        pass

    def read(self):
        return Reading(
            delays_ns={1: int(1e9 * self.delay_s)} if self.disturbances.counted else {},
            stolen_s=math.floor(self.stolen_s / TICK_S) * TICK_S,
            throttled_s=None,
            switches=self.switches,
            thread_s=self.thread_s,
            process_s=self.process_s,
            stops=0,
        )

    # steps

    def step(self, size, warming=1.0):
        """A step of the script: time passes, and the kernel counts."""
        how, rng = self.disturbances, self.rng
        self.size = size
        self.num_steps += 1
        busy_s = self.law.step_s(size) * warming * max(0.5, rng.gauss(1, how.noise))
        if how.every and not self.num_steps % how.every:
            busy_s *= 1 + how.periodic
        busy_s *= self._speed()
        waits_s = 0.0
        if how.spin > 1 or how.spin_s:
            spun_s = busy_s * (how.spin - 1) * rng.uniform(0.7, 1.3)
            spun_s += how.spin_s * rng.uniform(0.7, 1.3)
            share = rng.uniform(0.3, 0.6)
            waits_s += share * spun_s
            busy_s += (1 - share) * spun_s
        if how.shares and self._shares_a_core():
            busy_s += how.shared_s / 2 * rng.uniform(0.95, 1.05)
            waits_s += busy_s
        if how.neighbours:
            waits_s += self._slices_s(busy_s)
        stall_s, seen_s = self._stall_s(busy_s), 0.0
        if not how.silent:
            seen_s = stall_s
        stolen_s = seen_s * rng.random()
        lasted_s = busy_s + waits_s + stall_s
        self.now_s += lasted_s
        self.longest_s = max(self.longest_s, lasted_s)
        self.delay_s += waits_s + seen_s + rng.uniform(0, 2e-5)
        self.stolen_s += stolen_s
        self.switches += waits_s + seen_s > 0
        self.thread_s += busy_s
        self.process_s += 2 * busy_s

    def _slices_s(self, busy_s):
        """Waiting for a core: slices of 4 ms that go to neighbours while a step needs the core."""
        how, rng = self.disturbances, self.rng
        slices = busy_s / 0.004
        num = int(slices) + (rng.random() < slices % 1)
        return how.neighbours * 0.004 * num * rng.uniform(0.6, 1.4)

    def _stall_s(self, busy_s):
        how, rng = self.disturbances, self.rng
        chance = max(how.stalled, 1 - math.exp(-how.stalls_a_s * busy_s))
        return rng.uniform(1, 3) if rng.random() < chance else 0.0

    def _shares_a_core(self):
        """Whether the scheduler has put both threads on one core for now."""
        how, rng = self.disturbances, self.rng
        while self.now_s >= self.sharing_ends_s:
            self.on_one_core = not self.on_one_core
            share = how.shares if self.on_one_core else 1 - how.shares
            self.sharing_ends_s += rng.expovariate(1 / (2 * share * how.shares_s))
        return self.on_one_core

    def _speed(self):
        how, rng = self.disturbances, self.rng
        factor = 1 + how.drift * (0.5 + 0.5 * math.sin(2 * math.pi * self.now_s / how.drift_s))
        if how.slow > 1:
            while self.now_s >= self.phase_ends_s:
                self.is_slow = not self.is_slow
                self.phase_ends_s += rng.expovariate(1 / how.slow_s)
            factor *= how.slow if self.is_slow else 1.0
        return factor


class Session:
    """Runs a search as `session/run.py` does, deadlines included, on a kernel on paper."""

    def __init__(self, kernel, *, native, goal, setup_s=3.0):
        self.kernel = kernel
        self.goal = goal
        self.setup_s = setup_s
        discovery = discovery_of(native=native, num_samples=NUM_SAMPLES, setup_s=setup_s)
        record = record_of(goal=goal, discovery=discovery, state="running")
        device = msgspec.structs.replace(record.device, kind="cpu")
        ends_s = [kernel.now_s]
        for _ in range(3):
            kernel.step(native)
            ends_s.append(kernel.now_s)
        # What discovery saw, disturbed or not.
        seen_s = median(end - start for start, end in itertools.pairwise(ends_s))
        discovery = msgspec.structs.replace(discovery, native_step_s=seen_s)
        self.record = msgspec.structs.replace(record, device=device, discovery=discovery)
        self.began_s = kernel.now_s
        kernel.longest_s = 0.0
        self.worker, self.alive = 0, True

    @property
    def search_s(self):
        return self.kernel.now_s - self.began_s

    def search(self):
        """The record and the advice."""
        requests, stop = [], None
        while len(requests) < 4 * MAX_TRIALS:
            step = next_trial(self.record)
            if isinstance(step, Done):
                stop = step
                break
            requests.append(step)
            self._one(step)
        if stop is not None:
            self._change(state="finished", stop_reason=stop.reason)
        return Result(self.record, advise(self.record), stop, requests)

    def _one(self, request):
        left_s = self._left_s()
        if request.fresh_process or not self.alive:
            took_s = self.setup_s * self.kernel.rng.uniform(0.8, 1.5)
            self.kernel.now_s += min(took_s, left_s)
            if took_s > left_s:
                self._change()
                return
            self.worker += 1
        trial = self._run(request)
        trial = msgspec.structs.replace(trial, ended_s=self.search_s)
        self._change(trials=(*self.record.trials, trial))

    def _run(self, request):
        kernel, goal = self.kernel, self.goal
        shared = {
            "time_limit_s": max(1.0, min(MAX_TIMED_S, goal.budget_s * TIMED_SHARE)),
            "deadline_s": self._left_s(),
            "evidence": kernel,
            "clock": kernel.clock,
        }
        ordinal = len(self.record.trials)
        if request.turns is not None:
            window = TurnsWindow(request, kernel, seed=ordinal, **shared)
        else:
            window = Window(
                request, kernel, precision=CPU_PRECISION, min_sample_s=MIN_SAMPLE_S, **shared
            )
        window.resume()
        before = None
        while True:
            size = window.size
            window.arrived(size, "shape", 1e-4, primary=True)
            kernel.step(size, warming=1.0 if size == before else kernel.rng.uniform(1, 1.5))
            before = size
            if window.boundary():
                return window.result(ordinal, self.worker)
            window.resume()

    def _left_s(self):
        return max(0.0, end_s(self.goal.budget_s) - self.search_s)

    def _change(self, **changes):
        self.record = msgspec.structs.replace(self.record, search_s=self.search_s, **changes)


# what is drawn -------------------------------------------------------------------------------


def law_of(rng, native, native_s):
    """A law on which the script's own size takes so many seconds."""
    kind = rng.choice(("affine", "affine", "flat", "beyond a cache", "wide"))
    knee = native * 2 ** rng.uniform(-4, 4)  # where the fixed part equals the rest
    if kind == "flat":
        knee = native * rng.uniform(0, 0.02)
    width = int(native * 2 ** rng.uniform(-3, 3)) if kind == "wide" else 0
    cache = int(native * 2 ** rng.uniform(-2, 3)) if kind == "beyond a cache" else None
    law = Law(knee, 1.0, width, cache, rng.uniform(1.1, 2.0))
    scale = native_s / law.step_s(native)
    return Law(knee * scale, scale, width, cache, law.beyond)


def disturbances_of(rng):
    """A mixture: none in a third of the cases, else one or more kinds."""
    values = {"noise": rng.choice((0.003, 0.01, 0.03))}
    if rng.random() < 0.3:
        values |= {"every": rng.randint(5, 50), "periodic": rng.uniform(0.5, 10)}
    if rng.random() < 1 / 3:
        return Disturbances(**values)
    kinds = rng.sample(("stalls", "drift", "slow", "neighbours", "spin"), rng.choice((1, 1, 2, 3)))
    if "stalls" in kinds:
        often = rng.choice(("stalled", "stalls_a_s"))
        values |= {often: rng.uniform(0.02, 0.2), "silent": rng.random() < 0.2}
    if "drift" in kinds:
        values |= {"drift": rng.uniform(0.05, 0.35), "drift_s": 10 ** rng.uniform(1, 2.7)}
    if "slow" in kinds:
        values |= {"slow": rng.uniform(1.1, 1.8), "slow_s": 10 ** rng.uniform(-0.5, 1.5)}
    if "neighbours" in kinds:
        values["neighbours"] = rng.choice((0.5, 1.5, 3.0))
    if "spin" in kinds:
        if rng.random() < 0.5:
            values["spin"] = 10 ** rng.uniform(0.3, 1.5)
        else:
            values["spin_s"] = 10 ** rng.uniform(-1.5, 0)
    values["counted"] = rng.random() > 0.1
    return Disturbances(**values)


def session_of(seed):
    """The session of a seed."""
    rng = random.Random(seed)
    native = rng.choice((1, 2, 4, 8, 16, 24, 32, 48, 64, 100, 128, 256))
    law = law_of(rng, native, 10 ** rng.uniform(-2, 0.3))
    goal = Goal(
        kind=rng.choice(("knee", "knee", "throughput")), budget_s=rng.choice((60, 120, 300))
    )
    kernel = Kernel(law, disturbances_of(rng), rng)
    return Session(kernel, native=native, goal=goal)


def shared_session_of(seed, budget_s=120):
    """A session whose threads share one core for stretches, beside a neighbour on the other."""
    rng = random.Random(seed)
    native = rng.choice((8, 16, 32, 64))
    law = law_of(rng, native, 10 ** rng.uniform(-2.5, -1.5))
    how = Disturbances(
        neighbours=0.1,
        shares=rng.uniform(0.1, 0.9),
        shares_s=10 ** rng.uniform(-0.5, 1.2),
        shared_s=10 ** rng.uniform(-1, 0.3),
    )
    kernel = Kernel(law, how, rng)
    return Session(kernel, native=native, goal=Goal(budget_s=budget_s))


def rate(session, size):
    return session.kernel.law.throughput(size)


def rate_beside(session, size):
    """The same where each step waits for the threads of others, whatever its size."""
    return size / (session.kernel.law.step_s(size) + session.kernel.disturbances.spin_s)


def is_wrong(session, result):
    """Whether another size than the script's own is recommended that is truly worse.

    An answer that names the load is about the machine with this load.
    """
    own = session.record.discovery.native_batch_size
    if result.size is None or result.size == own:
        return False
    names_load = "compared beside others" in result.advice.reason
    true = rate_beside if names_load else rate
    ratio = true(session, result.size) / true(session, own)
    return ratio < 1 - session.goal.tolerance or (result.size > own and ratio < 1 - SLOWER)
