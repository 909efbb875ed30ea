"""Training steps on paper: a host, a GPU with a compute and a communication stream, a loader.

One `Step` describes what a step does; `simulate` plays several of them, event by event, and keeps
what the profiler would have written. Nothing here knows the rules that judge the traces: the true
cause of a step's length is found by playing it again without each cause (`savings`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

WARM_STEPS = 4
LAUNCH_US = 4.0
QUEUE = 1000
"""Activities that can be queued; a launch beyond waits."""
SHORTEST_US = 1.5


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a step does. Times in microseconds; `_us` a sample where the name says so.

    Attributes:
        num_kernels: compute kernels, optimizer included.
        kernel_sample_us: duration of a kernel for each sample of a full GPU.
        kernel_fixed_us: what a kernel takes besides.
        blocks_per_sm: of a kernel at this size; below 1 the GPU is not filled.
        dispatch_us: Python and dispatch for each kernel.
        python_us: Python once a step.
        load_sample_us: loading one sample.
        num_workers: data workers; 0 loads in the training process.
        num_syncs: `.item()` and the like, spread over the step.
        copy_sample_us: copying one sample to the GPU.
        blocking_copy: the host waits for the copy.
        num_buckets, bucket_us: collectives of a step, started as the backward pass goes on.
    """

    batch_size: int = 32
    num_kernels: int = 60
    kernel_sample_us: float = 1.0
    kernel_fixed_us: float = 2.0
    blocks_per_sm: float = 4.0
    dispatch_us: float = 8.0
    python_us: float = 100.0
    load_sample_us: float = 1.0
    num_workers: int = 4
    num_syncs: int = 0
    copy_sample_us: float = 0.5
    blocking_copy: bool = False
    num_buckets: int = 0
    bucket_us: float = 0.0
    jitter: float = 0.05
    seed: int = 0


def without(step: Step, cause: str) -> Step:
    """The same step without one cause."""
    if cause == "input":
        return replace(step, load_sample_us=0.0)
    if cause == "synchronisation":
        return replace(step, num_syncs=0, blocking_copy=False)
    if cause == "host":
        return replace(step, dispatch_us=0.0, python_us=0.0)
    if cause == "communication":
        return replace(step, num_buckets=0)
    if cause == "copies":
        return replace(step, copy_sample_us=0.0)
    assert cause == "small kernels"
    return replace(
        step,
        kernel_sample_us=step.kernel_sample_us * min(1.0, step.blocks_per_sm),
        kernel_fixed_us=step.kernel_fixed_us * min(1.0, step.blocks_per_sm),
    )


CAUSES = ("host", "communication", "copies", "small kernels")


def savings(step: Step, num_steps: int = 12) -> dict[str, float]:
    """Share of the step that each cause costs.

    Loading comes first: workers take it away, whatever the host waited for before. Then comes
    synchronisation: what the host does only matters beside it if it still costs something once
    the host may run ahead.
    """
    whole = simulate(step, num_steps).pace_us
    loaded = without(step, "input")
    shares = {"input": 1 - simulate(loaded, num_steps).pace_us / whole}
    shares["synchronisation"] = (
        simulate(loaded, num_steps).pace_us
        - simulate(without(loaded, "synchronisation"), num_steps).pace_us
    ) / whole
    free = without(step, "synchronisation")
    base = simulate(free, num_steps).pace_us
    for cause in CAUSES:
        shares[cause] = (base - simulate(without(free, cause), num_steps).pace_us) / whole
    return shares


@dataclass
class Played:
    """What a simulation left.

    Attributes:
        events: Chrome trace events of the profiled steps.
        ends_us: when each step was over, on the GPU.
        waits_us: how long each step waited for its batch.
    """

    events: list[dict[str, Any]] = field(default_factory=list)
    ends_us: list[float] = field(default_factory=list)
    waits_us: list[float] = field(default_factory=list)

    @property
    def pace_us(self) -> float:
        """Time from step to step once all is settled."""
        settled = self.ends_us[WARM_STEPS - 1 :]
        return (settled[-1] - settled[0]) / (len(settled) - 1)


def simulate(step: Step, num_profiled: int = 4) -> Played:
    """Plays warm-up steps and profiled ones."""
    return _Machine(step).play(num_profiled)


class _Machine:
    def __init__(self, step: Step) -> None:
        self.step = step
        self.random = random.Random(step.seed)
        self.now = 0.0
        self.compute_end = 0.0
        self.comm_end = 0.0
        self.ready: list[float] = []
        self.taken: list[float] = []
        self.queued: list[float] = []
        self.number = 0
        self.profiling = False
        self.started = 0.0
        self.played = Played()

    def play(self, num_profiled: int) -> Played:
        for index in range(WARM_STEPS + num_profiled):
            if index == WARM_STEPS:
                self.profiling = True
                self.started = self.now
            self._step(index)
        self.played.events = [
            event for event in self.played.events if event["ts"] + event["dur"] > self.started
        ]
        for event in self.played.events:
            event["ts"] = round(event["ts"], 3)
            event["dur"] = round(event["dur"], 3)
        return self.played

    def _vary(self, value: float) -> float:
        # Drawn also for a cause that is taken away: the rest must stay as it was.
        return value * max(0.2, self.random.gauss(1.0, self.step.jitter))

    def _step(self, index: int) -> None:
        step, begin = self.step, self.now
        self._load(index)
        self._host("python", self._vary(step.python_us))
        self._copy()
        num_back = step.num_kernels * 2 // 3
        buckets = _spread(step.num_buckets, step.num_kernels // 3, num_back)
        syncs = _spread(step.num_syncs, 1, step.num_kernels)
        for kernel in range(step.num_kernels):
            if kernel == num_back:  # the optimizer needs all gradients
                self.compute_end = max(self.compute_end, self.comm_end)
            self._host("aten::op", self._vary(step.dispatch_us))
            size = step.kernel_fixed_us + step.kernel_sample_us * step.batch_size
            self._launch("compute_kernel", max(self._vary(size), SHORTEST_US))
            for _ in range(buckets.count(kernel)):
                self._host("c10d::allreduce_", self._vary(step.dispatch_us))
                self._launch(
                    "ncclDevKernel_AllReduce_Sum_f32", self._vary(step.bucket_us), comm=True
                )
            for _ in range(syncs.count(kernel)):
                self._wait("cudaStreamSynchronize")
        self.played.ends_us.append(max(self.compute_end, self.comm_end, self.now))
        self._event("user_annotation", f"ProfilerStep#{index}", begin, self.now)

    def _load(self, index: int) -> None:
        step, begin = self.step, self.now
        cost = self._vary(step.load_sample_us * step.batch_size)
        if step.num_workers == 0:
            self.now += cost
        else:
            # A worker takes every num_workers-th batch, and no more than two ahead of the loop.
            before = self.ready[-step.num_workers] if len(self.ready) >= step.num_workers else 0.0
            asked = self.taken[-2 * step.num_workers] if index >= 2 * step.num_workers else 0.0
            self.ready.append(max(before, asked) + cost)
            self.now = max(self.now, self.ready[-1])
        self.taken.append(self.now)
        self.now += 20.0
        self.played.waits_us.append(self.now - begin)
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        self._event("user_annotation", name, begin, self.now)

    def _host(self, name: str, cost: float) -> None:
        begin = self.now
        self.now += cost
        if name != "python" and cost > 0:
            self._event("cpu_op", name, begin, self.now)

    def _copy(self) -> None:
        cost = self._vary(self.step.copy_sample_us * self.step.batch_size)
        if cost <= 0:
            return
        self._launch("Memcpy HtoD (Pageable -> Device)", cost, copy=True)
        if self.step.blocking_copy:
            self._wait("cudaStreamSynchronize")

    def _launch(self, name: str, cost: float, *, comm: bool = False, copy: bool = False) -> None:
        begin = self.now
        if len(self.queued) >= QUEUE:
            self.now = max(self.now, self.queued[-QUEUE])
        self.now += LAUNCH_US
        previous = max(self.comm_end, self.compute_end) if comm else self.compute_end
        start = max(previous, self.now) + (0.8 if previous < self.now else 1.2)
        end = start + cost
        if comm:
            self.comm_end = end
        else:
            self.compute_end = end
        self.queued.append(end)
        self.number += 1
        link = {"correlation": self.number}
        call = "cudaMemcpyAsync" if copy else "cudaLaunchKernel"
        self._event("cuda_runtime", call, begin, self.now, link)
        args: dict[str, Any] = {**link, "device": 0, "stream": 20 if comm else 7}
        if copy:
            args["bytes"] = 1024
        else:
            blocks = 0.2 if comm else self.step.blocks_per_sm
            args |= {"blocks per SM": blocks, "grid": [max(1, int(blocks * 100)), 1, 1]}
            args |= {"block": [256, 1, 1], "registers per thread": 32, "shared memory": 0}
        self._event("gpu_memcpy" if copy else "kernel", name, start, end, args, always=True)

    def _wait(self, name: str) -> None:
        begin = self.now
        self.now = max(self.now + 2.0, self.compute_end + 3.0)
        self._event("cuda_runtime", name, begin, self.now)

    def _event(
        self,
        cat: str,
        name: str,
        begin: float,
        end: float,
        args: dict[str, Any] | None = None,
        *,
        always: bool = False,
    ) -> None:
        if not (self.profiling or always):
            return
        tid: Any = 1
        if always and args is not None:
            tid = f"stream {args['stream']}"
        self.played.events.append(
            {
                "ph": "X",
                "cat": cat,
                "name": name,
                "pid": 0 if always else 4711,
                "tid": tid,
                "ts": begin,
                "dur": end - begin,
                "args": args or {},
            }
        )


def _spread(count: int, first: int, last: int) -> list[int]:
    """So many places between two, evenly; the last one included."""
    return [last - 1 - (last - first) * index // max(count, 1) for index in range(count)]
