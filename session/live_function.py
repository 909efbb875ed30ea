"""A function of the running process as `probe` and `find_batch_size` were given it."""

from __future__ import annotations

from typing import Any

import msgspec


class LiveStep(msgspec.Struct, frozen=True):
    """A function of a running Python process, to be probed there.

    Attributes:
        step: as in probes/doors/declared.py, or one of probes/doors/step_on_batches.py.
        batch_size: the size in use now, `None` where the step says it or nobody does.
        num_samples: of an epoch.
        ranks: the ranks of a job that run it together, see probes/distributed/live_ranks.py;
            `None` in a process alone.
    """

    step: Any
    batch_size: int | None = None
    num_samples: int | None = None
    ranks: Any = None
