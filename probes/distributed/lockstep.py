"""Keeps the ranks in step: all take the decision of rank 0 at the same step.

Lives in the worker. Between two optimizer steps every rank waits until all have arrived, so that
a measured step begins on all of them together; the wait is outside the measured time.
"""

from __future__ import annotations

import contextlib
import time

from ...records import Profile
from ..process.orders import Lockstep
from ..windows.protocols import WindowProfiler
from .messages import Join, dial


class Agreement:
    """One child's line to the coordinator.

    Args:
        order: where it is.

    Raises:
        OSError: it does not answer.
    """

    def __init__(self, order: Lockstep) -> None:
        self._leads = order.rank == 0
        join = Join(
            token=order.token,
            role="child",
            rank=order.rank,
            world_size=order.world_size,
            generation=order.generation,
        )
        # No time limit: the supervisors bound every wait, by silence.
        self._connection = dial(order.host, order.port, join)

    def close(self) -> None:
        """Hangs up."""
        self._connection.close()

    def agree(self, decision: bool) -> bool:
        """Waits for all ranks and returns what rank 0 decided.

        Where another rank is gone this never returns: the supervisors end this process.
        """
        self.arrive(decision)
        answer = self.met(None)
        assert answer is not None
        return answer

    def arrive(self, decision: bool = False) -> None:
        """Says that this rank is there, without a wait; `met` waits for the others."""
        with contextlib.suppress(OSError):  # `met` finds out
            self._connection.sendall(b"1" if decision and self._leads else b"0")

    def met(self, time_limit_s: float | None) -> bool | None:
        """Rank 0's decision, once all ranks have arrived; `None` where they did not in time.

        Args:
            time_limit_s: `None` waits for as long as it takes.
        """
        try:
            self._connection.settimeout(time_limit_s)
            answer = self._connection.recv(1)
        except TimeoutError:
            return None
        except OSError:
            answer = b""
        if not answer:
            while True:
                time.sleep(3600)
        return answer == b"1"


class SteadyProfiler:
    """Takes its number of steps whatever happens, so that no rank leaves a window early.

    Args:
        inner: the real one; `None` on ranks that only keep step.
        num_steps: of the schedule.
    """

    def __init__(self, inner: WindowProfiler | None, num_steps: int) -> None:
        self._inner = inner
        self._left = num_steps
        self._reason = "" if inner is not None else "the trace is taken on rank 0"

    def start(self) -> None:
        """Starts, or remembers why not."""
        self._guard("start")

    def step(self) -> bool:
        """Ends a step; true after the last one."""
        self._left -= 1
        self._guard("step")
        return self._left <= 0

    def finish(self) -> Profile:
        """The trace, or why there is none."""
        if self._inner is not None:
            try:
                return self._inner.finish()
            except Exception as error:  # noqa: BLE001  a failed profile never fails a trial
                self._fail(error)
        return Profile(unavailable={"trace": self._reason})

    def abandon(self) -> None:
        """Stops without a trace."""
        if self._inner is not None:
            self._inner.abandon()

    def _guard(self, name: str) -> None:
        if self._inner is None:
            return
        try:
            getattr(self._inner, name)()
        except Exception as error:  # noqa: BLE001
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._inner = None
        self._reason = f"the profiler failed: {type(error).__name__}: {error}"
