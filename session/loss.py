"""After the search: how the loss reduces a batch, where the end of the epoch depends on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..advisor.advise import advise
from ..advisor.explain.loss import matters, samples_to_halve, step_s_at_most
from ..advisor.search.cost import end_s
from ..probes.process.endings import NO_STEP, WorkerGone
from ..probes.process.worker_like import ChecksLoss
from ..probes.process.worker_listener import TimeOver
from ..probes.windows.loss_kind import NO_TIME, PLAN, REPEATS
from ..records import LossCheck
from .recording.record_writer import RecordWriter

if TYPE_CHECKING:
    from .workers.worker_pool import WorkerPool

MAX_LOSS_S = 20.0
MIN_LOSS_S = 0.5
"""It takes at most so long, and is not begun where less is left of the budget."""
NUM_STEPS = REPEATS * len(PLAN)


def measure_loss(workers: WorkerPool, writer: RecordWriter) -> None:
    """Steps on a batch and on its halves in the process that lives, into the record.

    Nothing that was measured before changes, and no failure here is one of the run.
    """
    record = writer.record
    advice = advise(record)
    recommended = advice.recommended
    if recommended is None or record.discovery is None:
        return
    size = recommended.batch_size
    if not matters(record.discovery, size) or (record.loss and record.loss.reduction):
        return
    wanted = samples_to_halve(record, size)
    if workers.current is None and record.loss and record.loss.reason != NO_TIME:
        return  # what an earlier part of the run said of it stays
    left_s = end_s(record.goal.budget_s) - writer.search_s
    limit_s = min(MAX_LOSS_S, left_s)
    if isinstance(wanted, int):
        needed_s = NUM_STEPS * step_s_at_most(advice, wanted)
        wanted = (
            LossCheck(reason=NO_TIME)
            if limit_s < max(MIN_LOSS_S, needed_s)
            else _measured(workers, wanted, limit_s)
        )
    writer.change(loss=wanted)


def _measured(workers: WorkerPool, num_samples: int, limit_s: float) -> LossCheck:
    worker = workers.current
    if not isinstance(worker, ChecksLoss):
        return LossCheck(reason="the script's process had ended by then")
    try:
        check = worker.run_loss(num_samples, limit_s)
    except TimeOver:
        return LossCheck(reason=NO_TIME)
    except WorkerGone as gone:
        return LossCheck(reason=f"the steps for it failed: {gone.detail}")
    if check.reason == NO_STEP:
        workers.end()
    return check
