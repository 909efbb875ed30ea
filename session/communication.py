"""After the search of a job of several ranks: what its communication costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..advisor.advise import advise
from ..advisor.measured.distribution import sizes_to_pair
from ..advisor.search.cost import end_s
from ..errors import BatchAdvisorError
from ..probes.process.endings import WorkerGone
from ..probes.process.orders import RunPairs
from ..records import Communication
from .display import Display
from .recording.record_writer import RecordWriter

if TYPE_CHECKING:
    from .workers.worker_pool import WorkerPool

MAX_PAIRS_S = 15.0
MIN_PAIRS_S = 3.0
PAIRS_SHARE = 1 / 10
"""The pairs of one size take at most so long, and at most this share of the budget; with less time
than the minimum they are not begun."""
NO_TIME_FOR_PAIRS = (
    "the budget was spent before it could be measured; a larger --budget leaves time for it"
)


def measure_communication(workers: WorkerPool, writer: RecordWriter, display: Display) -> None:
    """Paired steps at the recommended size and one more, into the record.

    Does nothing where there is one rank. A failure here leaves the search's result as it is.
    """
    distribution = writer.record.distribution
    if distribution is None or distribution.world_size < 2 or not distribution.ranks:
        return
    seen = distribution.parallelism
    if seen is None or "DistributedDataParallel" not in seen.shapes:
        reason = "the script wraps no model in DistributedDataParallel"
        _leave_out(
            writer, seen.not_measured[0] if seen is not None and seen.not_measured else reason
        )
        return
    sizes = sizes_to_pair(writer.record, advise(writer.record))
    for place, size in enumerate(sizes):
        limit_s = _limit_s(workers, writer, num_sizes=len(sizes) - place)
        if limit_s < MIN_PAIRS_S:
            _leave_out(writer, NO_TIME_FOR_PAIRS)
            return
        display.note(f"steps with and without synchronisation at batch {size}")
        pairs = _pairs(workers, size, limit_s)
        distribution = writer.record.distribution
        assert distribution is not None
        known = tuple(old for old in distribution.communication if old.batch_size != size)
        micro = writer.record.discovery.micro_batches if writer.record.discovery else 1
        pairs = msgspec.structs.replace(pairs, micro_batches=micro)
        communication = (*known, pairs)
        writer.change(
            distribution=msgspec.structs.replace(distribution, communication=communication)
        )
        if pairs.unavailable:
            return


def _leave_out(writer: RecordWriter, reason: str) -> None:
    distribution = writer.record.distribution
    assert distribution is not None
    unavailable = {**distribution.unavailable, "communication": reason}
    writer.change(distribution=msgspec.structs.replace(distribution, unavailable=unavailable))


def _limit_s(workers: WorkerPool, writer: RecordWriter, *, num_sizes: int) -> float:
    """Seconds that the pairs of the next size may take, of those that the budget still has."""
    record = writer.record
    left_s = end_s(record.goal.budget_s) - writer.search_s
    if workers.current is None and record.discovery is not None:
        left_s -= record.discovery.setup_s
    wanted_s = max(MIN_PAIRS_S, record.goal.budget_s * PAIRS_SHARE)
    return min(MAX_PAIRS_S, wanted_s, left_s / num_sizes)


def _pairs(workers: WorkerPool, size: int, limit_s: float) -> Communication:
    try:
        worker = workers.current or workers.start()
        made = worker.ask(RunPairs(batch_size=size, time_limit_s=limit_s))
        return Communication(batch_size=size, micro_batches=1, ranks=made.ranks)
    except (WorkerGone, BatchAdvisorError) as error:
        workers.end()
        reason = {"ranks": f"the paired steps failed: {error}"}
        return Communication(batch_size=size, micro_batches=1, unavailable=reason)
