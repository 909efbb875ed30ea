"""After the search: the samples in batches of like length, where padding costs and they may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..advisor.advise import advise
from ..advisor.explain.token_findings import worth_trying
from ..advisor.search.cost import end_s
from ..probes.process.endings import NO_STEP, WorkerGone
from ..probes.process.worker_like import TriesOrders
from ..probes.process.worker_listener import TimeOver
from ..records import OrderTrial
from .display import Display
from .recording.record_writer import RecordWriter

if TYPE_CHECKING:
    from .workers.worker_pool import WorkerPool

MAX_ORDERS_S = 20.0
MIN_ORDERS_S = 2.0
"""It takes at most so long, and is not begun where less is left of the budget."""
NUM_BATCHES = 50
"""Of each order, at most: as many as Hugging Face's Trainer sorts together."""
MIN_BATCHES = 8
NO_TIME = "the budget was spent before it could be tried"


def try_orders(workers: WorkerPool, writer: RecordWriter, display: Display) -> None:
    """Steps on the same samples in both orders in the process that lives, into the record.

    Nothing that was measured before changes, and no failure here is one of the run.
    """
    record = writer.record
    advice = advise(record)
    recommended = advice.recommended
    if recommended is None or not worth_trying(record, recommended.batch_size):
        return
    if record.distribution is not None and record.distribution.world_size > 1:
        return
    size = recommended.batch_size
    left_s = end_s(record.goal.budget_s) - writer.search_s
    limit_s = min(MAX_ORDERS_S, left_s)
    step_s = recommended.step_s.median if recommended.step_s is not None else 0.0
    if limit_s < max(MIN_ORDERS_S, 2 * MIN_BATCHES * step_s):
        writer.change(orders=OrderTrial(batch_size=size, reason=NO_TIME))
        return
    micro = record.discovery.micro_batches if record.discovery is not None else 1
    num_steps = NUM_BATCHES if not step_s else min(NUM_BATCHES, int(limit_s / step_s / 2))
    display.note(f"trying batches of like length at batch {size}")
    writer.change(orders=_tried(workers, size, num_steps * micro, limit_s))


def _tried(workers: WorkerPool, size: int, num_batches: int, limit_s: float) -> OrderTrial:
    worker = workers.current
    if not isinstance(worker, TriesOrders):
        return OrderTrial(batch_size=size, reason="the script's process had ended by then")
    try:
        orders = worker.run_orders(size, num_batches, limit_s)
    except TimeOver:
        return OrderTrial(batch_size=size, reason=NO_TIME)
    except WorkerGone as gone:
        return OrderTrial(batch_size=size, reason=f"the steps for it failed: {gone.detail}")
    if orders.reason == NO_STEP:
        workers.end()
    return orders
