"""Before a search for memory: steps of the script on fake tensors, in a process of their own.

They leave gradients and optimizer states without contents behind, so that no real step can follow
in their process. It is ended before the first trial; no timed step is made beside it.
"""

from __future__ import annotations

import time
from math import ceil

import msgspec

from ..advisor.measured.measurements import Measurements
from ..advisor.measured.sizes import largest_allowed
from ..advisor.measured.step_law import floor_of, passes_of
from ..advisor.search.prior_plan import next_fake_size
from ..probes.process.endings import WorkerGone
from ..probes.process.orders import RunFake
from ..probes.process.worker_listener import TimeOver
from ..records import FakeTrial, MemoryPrior, RunRecord, Variant
from ..units import format_seconds
from .display import Display
from .fake_failures import COMPILED_NOT_FAKED, NO_LOADER, why_not_faked
from .recording.record_writer import RecordWriter
from .workers.worker_pool import WorkerPool

PRIOR_SHARE = 1 / 8
"""Share of the budget that starting the script once more may cost, and the steps as much again."""


def predict_memory(
    workers: WorkerPool, writer: RecordWriter, display: Display, budget_share: float = 1.0
) -> None:
    """Puts the peaks of steps on fake tensors into the record, or why there are none.

    Does nothing where memory is not what is searched for. Nothing that happens here is a failure
    of the run: without these peaks the search goes by real ones.

    Args:
        budget_share: as in RunOptions.
    """
    if not is_wanted(writer.record):
        return
    reason = _why_not(workers, writer.record, budget_share)
    if reason:
        prior = MemoryPrior(reason=reason)
    else:
        since_s = time.monotonic()
        prior = _by_fake_steps(workers, writer.record, display)
        workers.end()
        prior = msgspec.structs.replace(prior, elapsed_s=time.monotonic() - since_s)
    writer.change(prior=prior)
    if prior.reason:
        display.note(f"memory is not predicted: {prior.reason}")


def is_wanted(record: RunRecord) -> bool:
    """Whether the largest size is searched for, and nothing is known of it yet."""
    goal = record.goal
    return goal.kind == "memory" and not goal.sizes and not record.trials and record.prior is None


def _why_not(workers: WorkerPool, record: RunRecord, budget_share: float) -> str:
    """Says why no such steps are made, before one was tried; else empty."""
    assert record.discovery is not None
    if not record.discovery.traits.steers_loader:
        return NO_LOADER
    if record.discovery.axis != "samples":
        return "sizes are a budget, and steps on fake tensors have so many samples"
    if record.discovery.compiled:
        return COMPILED_NOT_FAKED
    setup_s, budget_s = record.discovery.setup_s, record.goal.budget_s
    if workers.current is None or not workers.current.takes(RunFake):
        return "only the steps of a single process can be made on fake tensors"
    if setup_s > PRIOR_SHARE * budget_s:
        enough_s = ceil(setup_s / PRIOR_SHARE / budget_share)
        return (
            f"the script takes {format_seconds(setup_s)} to its loop and would have to start once "
            f"more; --budget {enough_s}s leaves time for it"
        )
    return ""


def _by_fake_steps(workers: WorkerPool, record: RunRecord, display: Display) -> MemoryPrior:
    worker, discovery, device = workers.current, record.discovery, record.device
    assert worker is not None
    assert discovery is not None
    assert device is not None
    measurements = Measurements.of(record)
    own, target = discovery.native_batch_size, measurements.target_bytes or 0
    top = largest_allowed(measurements)
    on_gpu = device.kind == "cuda"
    peaks: dict[int, int] = {}
    trials: list[FakeTrial] = []
    floor_bytes, until_s = 0, time.monotonic() + PRIOR_SHARE * record.goal.budget_s
    while (size := next_fake_size(peaks, own, target, top, floor_bytes)) is not None:
        display.note(f"a step on fake tensors at batch {size}")
        try:
            order = RunFake(batch_size=size, variant=Variant(), for_gpu=on_gpu)
            result = worker.ask(order, until_s)
        except TimeOver:
            return MemoryPrior(
                reason=f"steps on fake tensors took over {PRIOR_SHARE:.0%} of the budget"
            )
        except WorkerGone as gone:
            return MemoryPrior(reason=why_not_faked(gone))
        if result.trial is None:
            return MemoryPrior(reason=result.reason)
        trial = result.trial
        # Not what the allocator would reserve for one step: that jumps by segments, and is no line.
        peaks[size] = trial.peak_bytes
        trials.append(trial)
        floor_bytes = floor_of(trials, peaks)
    return MemoryPrior(peaks=peaks, passes=passes_of(trials), floor_bytes=floor_bytes)
