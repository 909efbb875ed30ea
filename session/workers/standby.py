"""The process that stands by: started with a run's first one, it spares the next its imports."""

from __future__ import annotations

from pathlib import Path

from ...probes.devices import host
from ...probes.process.interrupts import held_back
from ...probes.process.orders import WorkOrder
from ...probes.process.worker_launch import Launched, Standby

ROOM_BYTES = 2 << 30
"""Available memory below which no process stands by."""
WAIT_S = 3.0
"""The first trial waits at most so long for it to fall asleep."""


class Reserve:
    """Holds at most one such process.

    Args:
        allowed: whether there may be one.

    Attributes:
        standby: the process, while nobody wanted it.
    """

    def __init__(self, *, allowed: bool) -> None:
        self._allowed = allowed
        self.standby: Standby | None = None

    def start(self, order: WorkOrder, log: Path, environment: dict[str, str]) -> None:
        """Starts it beside the first process, where there is room for both."""
        if not self.has_room():
            return
        with held_back():
            self.standby = Standby(order, log, environment)

    def settle(self) -> None:
        """Nothing is measured before it sleeps; one that takes too long is given up."""
        if self.standby is not None and not self.standby.is_asleep(WAIT_S):
            self.end()

    def take(self, order: WorkOrder, environment: dict[str, str]) -> Launched | None:
        """The process, if it sleeps and began as this order wants it."""
        standby, self.standby = self.standby, None
        if standby is None:
            return None
        if standby.is_asleep(0.0) and standby.fits(order, environment):
            return standby.take()
        standby.end()
        return None

    def make_room(self) -> None:
        """Ends the standby process where memory is short: what is left belongs to the script."""
        if self.standby is not None and not self.has_room():
            self.end()

    def has_room(self) -> bool:
        """Whether a second process would take cores and memory that nobody misses."""
        available = host.available_bytes()
        roomy = available is not None and available[0] >= ROOM_BYTES
        return self._allowed and roomy and host.num_cores() > 1

    def end(self) -> None:
        """Ends it."""
        with held_back():
            if self.standby is not None:
                self.standby.end()
                self.standby = None
