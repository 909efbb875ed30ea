"""A processor on paper whose speed drifts within seconds, as real ones do."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from batchadvisor.spread import inverse, spread_of

from .machine import GIB, MAX_TRIALS, Machine, exactly, trial_of

RELATIVE = {
    1: 0.2, 2: 0.32, 4: 0.453, 8: 0.647, 16: 0.823, 24: 0.9, 32: 0.936, 48: 0.97, 64: 1.0,
    96: 1.003, 128: 0.977, 192: 0.93, 256: 0.88, 512: 0.75, 1024: 0.7, 1563: 0.68,
}  # fmt: skip
"""Throughput of a small GPT on two cores by batch size, as a share of that at 64; up to 128 the
medians of 14 interleaved rounds, beyond that drawn by hand."""
BEST = 660.0
"""Samples per second at 64."""


def throughput(size):
    """Samples per second without drift, between the known sizes straight in log size."""
    above = min(one for one in RELATIVE if one >= size)
    below = max(one for one in RELATIVE if one <= size)
    if above == below:
        return BEST * RELATIVE[size]
    share = math.log(size / below) / math.log(above / below)
    return BEST * (RELATIVE[below] * (1 - share) + RELATIVE[above] * share)


class Speed:
    """Time, and how much longer than usual everything takes at the moment."""

    def __init__(self, seed):
        self._rng = random.Random(seed)
        self.now_s = 0.0
        self._wander = 0.0
        self._slow, self._slow_until_s = 0.0, 0.0

    def factor(self, passes_s):
        """Lets time pass; returns the factor on step times."""
        self.now_s += passes_s
        kept = math.exp(-passes_s / 6)
        self._wander = self._wander * kept + self._rng.gauss(0, 0.055 * math.sqrt(1 - kept**2))
        if self.now_s > self._slow_until_s and self._rng.random() < passes_s / 40:
            self._slow_until_s = self.now_s + self._rng.uniform(4, 20)
            self._slow = self._rng.uniform(0.1, 0.28)
        slow = self._slow if self.now_s < self._slow_until_s else 0.0
        return math.exp(self._wander + slow + self._rng.gauss(0, 0.02))


@dataclass
class DriftingMachine(Machine):
    """A CPU with the throughput above and a speed that is never the same for long."""

    kind: str = "cpu"
    time_s: Callable[[int], float] = lambda size: size / throughput(size)
    capacity: int = 20 * GIB

    def search(self, goal=None, stop_after=4 * MAX_TRIALS):
        """Runs the whole search; rounds make many short trials."""
        self.speed = Speed(self.seed)
        return super().search(goal, stop_after)

    def _run(self, request, worker, ordinal, rng):
        if request.kind == "fit":
            return super()._run(request, worker, ordinal, rng)
        start_s = self.speed.now_s
        size, brief = request.batch_size, request.round is not None
        usual_s = self.time_s(size)

        def step():
            return usual_s * self.speed.factor(usual_s)

        for _ in range(2 if brief else 4):
            step()
        group = max(1, math.ceil(0.01 / usual_s))
        times = []
        while not self._enough(times, group, brief=brief):
            times.append(sum(step() for _ in range(group)) / group)
        step_s = spread_of(times)
        trial = trial_of(
            size,
            ordinal=ordinal,
            worker=worker,
            kind="timed",
            purpose=request.purpose,
            round=request.round,
            peak=GIB / 2 + size * 2**20,
            elapsed_s=self.speed.now_s - start_s,
        )
        return msgspec.structs.replace(
            trial,
            step_s=step_s,
            samples_per_s=inverse(step_s, size),
            input_wait_s=exactly(0.0),
        )

    @staticmethod
    def _enough(times, group, *, brief):
        if brief:
            return len(times) >= 30 or (len(times) >= 4 and sum(times) * group >= 0.25)
        return len(times) >= 30 or (
            len(times) >= 6 and spread_of(times).relative_half_width <= 0.05
        )
