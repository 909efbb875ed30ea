"""After the search: where the memory goes, by steps on fake tensors."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..advisor.advise import advise
from ..advisor.measured.measurements import Measurements
from ..advisor.search.cost import end_s
from ..errors import BatchAdvisorError
from ..probes.process.endings import NO_OPTIMIZER_STEP, WorkerGone
from ..probes.process.orders import RunFake, RunRecorded
from ..probes.process.worker_listener import TimeOver
from ..records import (
    ExplainedSize,
    MemoryAnalysis,
    MemoryExplained,
    RunRecord,
    Variant,
    WhyExplained,
)
from .display import Display
from .fake_failures import COMPILED_NOT_FAKED, NO_LOADER, why_not_faked
from .recording.record_writer import RecordWriter
from .recording.store import MEMORY_PAGE

if TYPE_CHECKING:
    from .workers.worker_pool import WorkerPool

MAX_EXPLAIN_S, MIN_S = 20.0, 2.0
"""The steps take at most so long, and are not begun where less is left of the budget."""
START_FACTOR = 1.5
"""A process that is started for it may take so much longer than the first."""
SNAPSHOT = "snapshot.pickle"
REFUSED_FILES = "refused-*.pickle"
"""Files that a process on CUDA writes as memory is refused."""
NO_TIME_TO_EXPLAIN = "the budget was spent before a step on fake tensors could be made"
TOO_SLOW = f"steps on fake tensors took more than {MAX_EXPLAIN_S:g} s"
PROCESS_ENDED = "the script's process had ended by then"
RANKS_NOT_FAKED = "a script that runs as several ranks makes no steps on fake tensors"
SCATTERED = "a batch that DataParallel cuts over several GPUs makes no steps on fake tensors"


def record_step(workers: WorkerPool, writer: RecordWriter) -> MemoryAnalysis | None:
    """Records one real step at the recommended size with torch's own recorder, on CUDA.

    In the process that lives, before its batches are replaced. A failure is none of the run.
    Ran on one H100, for two scripts.
    """
    record, worker = writer.record, workers.current
    recommended = advise(record).recommended
    device = record.device
    if recommended is None or device is None or device.kind != "cuda":
        return None
    left_s = end_s(record.goal.budget_s) - writer.search_s
    if worker is None or not worker.takes(RunRecorded) or left_s < MIN_S:
        return None
    path = writer.store.folder.resolve() / SNAPSHOT
    try:
        until_s = time.monotonic() + min(MAX_EXPLAIN_S, left_s)
        order = RunRecorded(batch_size=recommended.batch_size, path=str(path))
        reason = worker.ask(order, until_s).reason
        if reason.startswith(NO_OPTIMIZER_STEP):
            workers.end()
        if reason:
            return None
        from .memory import analyze_memory

        return analyze_memory(path)
    except (TimeOver, WorkerGone, BatchAdvisorError):
        workers.end()
        return None


def explain_memory(
    workers: WorkerPool,
    writer: RecordWriter,
    display: Display,
    recorded: MemoryAnalysis | None = None,
) -> None:
    """Steps on fake tensors in the process that lives, into the record; its last steps.

    At the recommended size; where memory was refused, also at the largest size that ran and at the
    smallest that was refused, and a page of it in the run's folder. Nothing that was measured
    before changes, and no failure here is one of the run.

    Args:
        recorded: see `record_step`.
    """
    sizes = sizes_to_explain(writer.record)
    before = writer.record.explained
    known = [(each.batch_size, each.why) for each in before.sizes] if before is not None else []
    if not sizes or sizes == known:
        return
    began_s = time.monotonic()
    explained, reason = _explained(workers, writer, sizes)
    writer.change(
        explained=MemoryExplained(
            sizes=explained,
            elapsed_s=time.monotonic() - began_s,
            reason=reason,
            snapshot=SNAPSHOT if recorded is not None else "",
            recorded=recorded,
        )
    )
    _leave_page(writer.record, writer.store.folder, display)


def _leave_page(record: RunRecord, folder: Path, display: Display) -> None:
    """A page in the run's folder, where memory was refused."""
    if refused_size(record) is None:
        return
    from .memory import write_memory_page

    dumped = max(folder.glob(REFUSED_FILES), key=lambda path: path.stat().st_mtime, default=None)
    problem = write_memory_page(record, folder, dumped)
    display.note(problem or f"where the memory goes: {folder / MEMORY_PAGE}")


def sizes_to_explain(record: RunRecord) -> list[tuple[int, WhyExplained]]:
    """Sizes whose memory is to be explained, each once, with the reason."""
    sizes: dict[int, WhyExplained] = {}
    recommended = advise(record).recommended
    if recommended is not None:
        sizes[recommended.batch_size] = "recommended"
    refused = refused_size(record)
    if refused is not None:
        ran = [size for size in Measurements.of(record).sizes_that_ran if size < refused]
        if ran:
            sizes.setdefault(max(ran), "largest that ran")
        sizes[refused] = "out of memory"
    return list(sizes.items())


def refused_size(record: RunRecord) -> int | None:
    """The smallest size that ran out of memory."""
    failed = Measurements.of(record).failed
    return min(
        (trial.batch_size for trial in failed if trial.outcome == "out_of_memory"), default=None
    )


def _explained(
    workers: WorkerPool,
    writer: RecordWriter,
    sizes: list[tuple[int, WhyExplained]],
) -> tuple[tuple[ExplainedSize, ...], str]:
    """Explains the memory of these sizes; else says why nothing is known."""
    record = writer.record
    discovery = record.discovery
    assert discovery is not None  # a size ran, or was refused
    if record.distribution is not None:
        if record.distribution.world_size > 1:
            return (), RANKS_NOT_FAKED
        parallelism = record.distribution.parallelism
        if parallelism is not None and parallelism.scatters:
            return (), SCATTERED
    if not discovery.traits.steers_loader:
        return (), NO_LOADER
    if discovery.compiled:
        return (), COMPILED_NOT_FAKED
    left_s = end_s(record.goal.budget_s) - writer.search_s
    over_s = time.monotonic() + left_s
    if left_s < MIN_S:
        return (), NO_TIME_TO_EXPLAIN
    if workers.current is None:
        refused = refused_size(record) is not None
        if not refused:
            return (), PROCESS_ENDED
        if left_s < MIN_S + START_FACTOR * discovery.setup_s:
            return (), NO_TIME_TO_EXPLAIN
        try:
            workers.until_s = over_s
            workers.start()
        except TimeOver:
            return (), NO_TIME_TO_EXPLAIN
        except BatchAdvisorError as error:
            return (), f"the script did not come to its loop again: {error.what.rstrip('.')}"
    worker = workers.current
    if worker is None or not worker.takes(RunFake):
        return (), RANKS_NOT_FAKED
    until_s = min(over_s, time.monotonic() + MAX_EXPLAIN_S)
    on_gpu = record.device is not None and record.device.kind == "cuda"
    explained: list[ExplainedSize] = []
    reason = ""
    for size, why in sizes:
        trial = None
        if not reason:
            try:
                order = RunFake(batch_size=size, variant=Variant(), for_gpu=on_gpu)
                result = worker.ask(order, until_s)
                trial, reason = result.trial, result.reason
            except TimeOver:
                reason = TOO_SLOW if until_s < over_s else NO_TIME_TO_EXPLAIN
            except WorkerGone as gone:
                reason = why_not_faked(gone)
        explained.append(
            ExplainedSize(batch_size=size, why=why, trial=trial, reason="" if trial else reason)
        )
    if all(each.trial is None for each in explained):
        return (), reason
    return tuple(explained), ""
