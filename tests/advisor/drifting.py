"""A processor on paper whose speed drifts within seconds, as real ones do."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

import msgspec
from batchadvisor.records import Goal, Turns
from batchadvisor.session.run import MAX_TIMED_S, TIMED_SHARE
from batchadvisor.spread import inverse, spread_of

from ..on_paper import GIB, exactly, trial_of
from .machine import MAX_TRIALS, Machine

RELATIVE = {
    1: 0.2, 2: 0.32, 4: 0.453, 8: 0.611, 16: 0.805, 24: 0.895, 32: 0.945, 40: 0.965, 48: 0.985,
    64: 1.0, 96: 0.985, 128: 0.92, 192: 0.9, 256: 0.88, 512: 0.75, 1024: 0.7, 1563: 0.68,
}  # fmt: skip
"""Throughput of a small GPT on two cores by batch size, as a share of that at 64; from 8 to 128
the medians of 280 interleaved rounds, the others drawn by hand."""
BEST = 660.0
"""Samples per second at 64."""


def throughput(size):
    """Samples per second without drift, between the known sizes straight in log size."""
    above = min(known for known in RELATIVE if known >= size)
    below = max(known for known in RELATIVE if known <= size)
    if above == below:
        return BEST * RELATIVE[size]
    share = math.log(size / below) / math.log(above / below)
    return BEST * (RELATIVE[below] * (1 - share) + RELATIVE[above] * share)


class Speed:
    """Time, and how much longer than usual everything takes at the moment.

    Of the variance of log step times that were measured on two busy virtual cores (standard
    deviation 0.18) about a third was gone from one step to the next, half of the rest within
    two seconds, and the last part within half a minute.
    """

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.now_s = 0.0
        self._wander = [0.0, 0.0]

    def factor(self, passes_s):
        """Lets time pass; returns the factor on step times."""
        self.now_s += passes_s
        for number, (spread, lasts_s) in enumerate(((0.12, 2.0), (0.08, 30.0))):
            kept = math.exp(-passes_s / lasts_s)
            fresh = self.rng.gauss(0, spread * math.sqrt(1 - kept**2))
            self._wander[number] = self._wander[number] * kept + fresh
        return math.exp(sum(self._wander) + self.rng.gauss(0, 0.1))


@dataclass
class DriftingMachine(Machine):
    """A CPU with the throughput above and a speed that is never the same for long."""

    kind: str = "cpu"
    time_s: Callable[[int], float] = lambda size: size / throughput(size)
    capacity: int = 20 * GIB

    def search(self, goal=None, stop_after=4 * MAX_TRIALS):
        """Runs the whole search; turns make many trials."""
        self.speed = Speed(self.seed)
        self.budget_s = (goal or Goal()).budget_s
        return super().search(goal, stop_after)

    def _run(self, request, worker, ordinal, rng):
        if request.kind == "fit":
            return super()._run(request, worker, ordinal, rng)
        start_s = self.speed.now_s
        size = request.batch_size
        if self.outcome(request, worker) is not None:
            return super()._run(request, worker, ordinal, rng)
        if request.turns is not None:
            return self._take_turns(request, ordinal=ordinal, worker=worker)
        for _ in range(4):
            self._step(size)
        group = max(1, math.ceil(0.01 / self.time_s(size)))
        times, timed_s = [], self.speed.now_s
        while not self._enough(times, self.speed.now_s - timed_s):
            times.append(fmean(self._step(size) for _ in range(group)))
        step_s = spread_of(times)
        trial = trial_of(
            size,
            ordinal=ordinal,
            worker=worker,
            kind="timed",
            purpose=request.purpose,
            peak=GIB / 2 + size * 2**20,
            elapsed_s=self.speed.now_s - start_s,
        )
        return msgspec.structs.replace(
            trial,
            step_s=step_s,
            samples_per_s=inverse(step_s, size),
            input_wait_s=exactly(0.0),
        )

    def _step(self, size):
        usual_s = self.time_s(size)
        return usual_s * self.speed.factor(usual_s)

    def _take_turns(self, request, **where):
        plan, start_s = request.turns, self.speed.now_s
        rows = []
        for _ in range(plan.num_rounds):
            row = {}
            turns = list(zip(plan.sizes, plan.num_steps, strict=True))
            self.speed.rng.shuffle(turns)
            for size, num in turns:
                for _ in range(plan.num_warmup_steps):
                    self._step(size)
                row[size] = fmean(self._step(size) for _ in range(num))
            rows.append(tuple(row[size] for size in plan.sizes))
        return trial_of(
            request.batch_size,
            kind="turns",
            purpose=request.purpose,
            turns=Turns(sizes=plan.sizes, step_s=tuple(rows)),
            elapsed_s=self.speed.now_s - start_s,
            **where,
        )

    def _enough(self, times, spent_s):
        if len(times) < 6 or len(times) >= 30:
            return len(times) >= 30
        late = spent_s >= min(MAX_TIMED_S, self.budget_s * TIMED_SHARE)
        return late or spread_of(times).relative_half_width <= 0.05
