"""A process of the script that makes no trial: how it trains under another order."""

from __future__ import annotations

import time
from typing import Any

from ...records import Discovery
from .worker_pool import WorkerPool


def look(workers: WorkerPool, limit_s: float, **changes: Any) -> Discovery:
    """The training loop that such a process comes to; then it is ended.

    Args:
        changes: of the order.

    Raises:
        WorkerGone, TimeOver, RanksStarting: it was not found.
    """
    workers.end()
    try:
        return workers.spawn(**changes).discover(time.monotonic() + limit_s)[0]
    finally:
        workers.end()
