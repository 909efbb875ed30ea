"""After the search of a job of several ranks: what its communication costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..advisor.advise import advise
from ..advisor.distribution import sizes_to_pair
from ..errors import BatchAdvisorError
from ..probes.distributed.ranked_worker import RankedWorker
from ..probes.supervisor import WorkerGone
from ..records import Communication
from .display import Display
from .journal import Journal

if TYPE_CHECKING:
    from .workers import Workers

MAX_PAIRS_S = 15.0
MIN_PAIRS_S = 3.0
BUDGET_SHARE = 1 / 10
"""The pairs of one size take at most so long, and at most this share of the budget."""


def measure_communication(workers: Workers, journal: Journal, display: Display) -> None:
    """Paired steps at the recommended size and one more, into the record.

    Does nothing where there is one rank. A failure here leaves the search's result as it is.
    """
    found = journal.record.distribution
    if found is None or found.world_size < 2 or not found.ranks:
        return
    seen = found.parallelism
    if seen is None or "DistributedDataParallel" not in seen.shapes:
        reason = "the script wraps no model in DistributedDataParallel"
        if seen is not None and seen.not_measured:
            reason = seen.not_measured[0]
        unavailable = {**found.unavailable, "communication": reason}
        journal.change(distribution=msgspec.structs.replace(found, unavailable=unavailable))
        return
    limit_s = journal.record.goal.budget_s * BUDGET_SHARE
    for size in sizes_to_pair(journal.record, advise(journal.record)):
        display.note(f"steps with and without synchronisation at batch {size}")
        one = _pairs(workers, size, max(MIN_PAIRS_S, min(MAX_PAIRS_S, limit_s)))
        found = journal.record.distribution
        assert found is not None
        known = tuple(old for old in found.communication if old.batch_size != size)
        micro = journal.record.discovery.micro_batches if journal.record.discovery else 1
        one = msgspec.structs.replace(one, micro_batches=micro)
        journal.change(distribution=msgspec.structs.replace(found, communication=(*known, one)))
        if one.unavailable:
            return


def _pairs(workers: Workers, size: int, limit_s: float) -> Communication:
    try:
        worker = workers.current or workers.start()
        assert isinstance(worker, RankedWorker)
        return Communication(
            batch_size=size, micro_batches=1, ranks=worker.run_pairs(size, limit_s)
        )
    except (WorkerGone, BatchAdvisorError) as error:
        workers.end()
        reason = {"ranks": f"the paired steps failed: {error}"}
        return Communication(batch_size=size, micro_batches=1, unavailable=reason)
