"""How many cores are used by processes outside the run, told anew now and then."""

from __future__ import annotations

import os
import time
from collections.abc import Collection

from .cores import Snapshot, snapshot
from .neighbours import OTHERS_CORES, use_between

STRETCH_S = 0.25
"""The kernel counts each core in ticks of 10 ms or less: 25 of them tell a tenth of a core."""
COST_SHARE = 0.01
"""Share of the time between steps that looking at all processes may take."""


class Outside:
    """How many cores processes outside the run use, told anew now and then.

    Args:
        own: as in `Surroundings.causes`.
    """

    def __init__(self, own: Collection[int] = ()) -> None:
        self._own = own
        self._before, self._cost_s = _timed_snapshot()
        self._cores: float | None = None

    def cores(self) -> float | None:
        """Cores that they used in the latest stretch; `None` where nobody counts that, or not yet.

        A stretch is long against the ticks that the kernel counts in, and against what looking at
        all processes costs.
        """
        stretch_s = max(STRETCH_S, self._cost_s / COST_SHARE)
        if time.monotonic() - self._before.at_s >= stretch_s:
            after, self._cost_s = _timed_snapshot()
            use = use_between(self._before, after, me=os.getpid(), own=self._own)
            self._cores = None if use is None else use.others_s / use.wall_s
            if use is not None and self._cores is not None and self._cores < OTHERS_CORES:
                # So little may be no more than ticks that are missing; what each used is exact.
                self._cores = min(self._cores, sum(use.by_name.values()) / use.wall_s)
            self._before = after
        return self._cores


def _timed_snapshot() -> tuple[Snapshot, float]:
    started_s = time.monotonic()
    taken = snapshot()
    return taken, time.monotonic() - started_s
