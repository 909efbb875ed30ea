"""A machine on paper: laws of time and memory, on which the search runs as on a real one."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.search.next_trial import Done, next_trial
from batchadvisor.records import (
    Advice,
    Discovery,
    MemoryPrior,
    RunRecord,
    TailCheck,
    TrialRequest,
)
from batchadvisor.spread import inverse, spread_of

from ..on_paper import GIB, discovery_of, exactly, failure_of, record_of, trial_of

MAX_TRIALS = 60
"""No search may come near it; see `Result.finished`."""
NUM_TIMED_STEPS = 10
WARMUP_STEPS = 4


@dataclass
class Result:
    """What a search left."""

    record: RunRecord
    advice: Advice
    stop: Done | None
    requests: list[TrialRequest]

    @property
    def finished(self):
        """Whether the search ended by itself."""
        return self.stop is not None

    @property
    def size(self):
        """The recommended size, `None` without one."""
        return self.advice.recommended and self.advice.recommended.batch_size

    @property
    def tried(self):
        """Sizes of the search, in order; confirmation and tail left out."""
        return [trial.batch_size for trial in self.record.trials if trial.purpose == "search"]

    @property
    def num_refused(self):
        """Trials that ran out of memory."""
        return sum(trial.outcome == "out_of_memory" for trial in self.record.trials)


@dataclass
class Machine:
    """The laws of a machine.

    Attributes:
        time_s: seconds per step of a size.
        memory: peak bytes of a size.
        capacity: what the search is told.
        kind: of the device.
        real_capacity: where memory really ends; the same if not given.
        noise: relative standard deviation of a step and of the drift between trials.
        memory_noise: the same of a peak.
        blind: every peak reads the same.
        prior: what steps on fake tensors said.
        outcome: overrules a trial's outcome, given its request and the worker's number.
    """

    time_s: Callable[[int], float] = lambda size: 0.005 + 0.0005 * size
    memory: Callable[[int], float] = lambda size: GIB + 20e6 * size
    capacity: int = 80 * GIB
    kind: str = "cuda"
    real_capacity: int | None = None
    noise: float = 0.01
    memory_noise: float = 0.0
    seed: int = 0
    blind: bool = False
    setup_s: float = 4.0
    discovery: Discovery = field(default_factory=discovery_of)
    prior: MemoryPrior | None = None
    outcome: Callable[[TrialRequest, int], str | None] = lambda request, worker: None

    def search(self, goal=None, stop_after=MAX_TRIALS):
        """Runs the whole search and asks for advice."""
        record = record_of(
            goal=goal,
            capacity=self.capacity,
            discovery=msgspec.structs.replace(
                self.discovery, setup_s=self.setup_s, native_step_s=self.time_s(8)
            ),
            state="running",
            prior=self.prior,
        )
        device = msgspec.structs.replace(record.device, kind=self.kind)
        record = msgspec.structs.replace(record, device=device)
        return self.goes_on(record, stop_after)

    def goes_on(self, record, stop_after=MAX_TRIALS):
        """Runs what is left of a search, in a process of its own."""
        rng = random.Random(self.seed)
        worker, alive = max((1 + trial.worker for trial in record.trials), default=0), True
        requests = []
        stop = None
        while len(requests) < stop_after:
            step = next_trial(record)
            if isinstance(step, Done):
                stop = step
                break
            requests.append(step)
            spent_s = 0.0
            if step.fresh_process or not alive:
                worker, alive, spent_s = worker + 1, True, self.setup_s
            trial = self._run(step, worker, len(record.trials), rng)
            alive = trial.ran
            record = msgspec.structs.replace(
                record,
                trials=(*record.trials, trial),
                search_s=record.search_s + spent_s + trial.elapsed_s,
            )
        if stop is not None:
            record = msgspec.structs.replace(record, state="finished", stop_reason=stop.reason)
        return Result(record, advise(record), stop, requests)

    def _run(self, request, worker, ordinal, rng):
        size = request.batch_size
        rest = {"ordinal": ordinal, "worker": worker, "purpose": request.purpose}
        outcome = self.outcome(request, worker)
        peak = self.memory(size) * max(0.5, rng.gauss(1, self.memory_noise))
        if outcome is None and peak > (self.real_capacity or self.capacity):
            outcome = "out_of_memory"
        if outcome is not None:
            tail = None
            if request.purpose == "tail":
                tail = TailCheck(num_samples=size, outcome=outcome, detail="on paper")
            step = self.time_s(size)
            return failure_of(
                size, outcome, kind=request.kind, tail=tail, elapsed_s=2 * step, **rest
            )
        drift = max(0.5, rng.gauss(1, self.noise / 2))
        times = [
            self.time_s(size) * drift * max(0.5, rng.gauss(1, self.noise))
            for _ in range(NUM_TIMED_STEPS)
        ]
        trial = trial_of(
            size,
            peak=10 * 2**20 if self.blind else peak,
            elapsed_s=2 * self.time_s(size),
            micro_batches=self.discovery.micro_batches,
            **rest,
        )
        if request.kind == "timed":
            step_s = spread_of(times)
            trial = msgspec.structs.replace(
                trial,
                kind="timed",
                step_s=step_s,
                samples_per_s=inverse(step_s, size),
                input_wait_s=exactly(0.0),
                elapsed_s=sum(times) + WARMUP_STEPS * self.time_s(size),
            )
        if request.purpose == "tail":
            check = TailCheck(num_samples=size, outcome="ok")
            trial = msgspec.structs.replace(trial, tail=check)
        return trial
