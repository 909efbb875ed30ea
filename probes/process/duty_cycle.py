"""A logical CPU device of a known strength: some cores, for a share of the time."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

CYCLE_S = 0.02
"""No longer than what a window averages over (`MIN_SAMPLE_S` of session/run.py), and longer than a
tick."""


class DutyCycle:
    """Stops and continues a process group, so that it runs for a share of the time.

    Args:
        pid: of the group's leader.
        share: 0 to 1; what the group gets of each period.
    """

    def __init__(self, pid: int, share: float) -> None:
        self._pid = pid
        self._share = share
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._turn, name="duty cycle", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Lets the group run; call before it is ended."""
        self._over.set()
        self._thread.join()
        self._send(signal.SIGCONT)

    def _turn(self) -> None:
        while not self._over.is_set():
            start_s = time.monotonic()
            self._send(signal.SIGCONT)
            self._over.wait(self._share * CYCLE_S)
            self._send(signal.SIGSTOP)
            # From what it really got, so that late wake-ups keep the share.
            ran_s = time.monotonic() - start_s
            self._over.wait(ran_s / self._share - ran_s)

    def _send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, number)


def cores_for(num_cores: int) -> tuple[int, ...] | None:
    """The first so many cores that this process may use, `None` if there are fewer."""
    mine = sorted(os.sched_getaffinity(0))
    return tuple(mine[:num_cores]) if len(mine) >= num_cores else None
