"""Steps of each rank while the others wait: what one process does that shares its host with none.

Every rank makes as many steps in its turn as the others, one rank after the other. A script whose
ranks talk to each other in the step itself would wait for ever: a rank that waits too long makes
its own steps then, which sets the other free, and no further turns are taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

MOST_RANKS = 8
"""With more ranks the turns take too long."""
TURN_PATIENCE = 20
"""Ordinary steps that a rank waits for the turn of another, but at least `LEAST_PATIENCE_S`."""
LEAST_PATIENCE_S = 2.0
TALKS = "the ranks wait for each other in the step itself: none can make one alone"


class Meets(Protocol):
    """See lockstep.Agreement."""

    def arrive(self, decision: bool = False) -> None:
        """Says that this rank is there, without a wait."""

    def met(self, time_limit_s: float | None) -> bool | None:
        """Rank 0's decision, once all ranks have arrived; `None` where they did not in time."""


class AloneTurns:
    """The turns of one rank.

    Args:
        ddp: its DistributedDataParallel modules.
        bare: whether their own forward may be left out.
        clock: monotonic seconds.

    Attributes:
        unavailable: why there are none, or no more of them; empty where there are.
    """

    def __init__(
        self,
        rank: int,
        world_size: int,
        ddp: Sequence[Any],
        meeting: Meets,
        *,
        bare: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._rank = rank
        self._world_size = world_size
        self._meeting = meeting
        self._bare = [model for model in ddp if bare and _only_calls(model)]
        self._clock = clock
        self._turn = 0
        self._had_turn = False
        self._pending = False
        self._limit_s = LEAST_PATIENCE_S
        self._started_s = 0.0
        many = f"it is measured for {MOST_RANKS} ranks at most"
        self.unavailable = many if world_size > MOST_RANKS else ""

    def begin(self, step_s: float) -> bool:
        """Whether this rank is to make the steps of its turn now; else the pairs go on.

        Args:
            step_s: of an ordinary step.
        """
        if self._world_size > MOST_RANKS:
            return False
        self._meeting.arrive(not self.unavailable)
        if not self._meeting.met(None):
            self.unavailable = self.unavailable or TALKS
            return False
        self._turn, self._had_turn = 0, False
        self._limit_s = max(LEAST_PATIENCE_S, TURN_PATIENCE * step_s)
        return self._go_on()

    def made(self) -> None:
        """A step of the turn was made."""
        # It was waited for. The others give up after the limit, which may run out for them sooner
        # than for this rank: they began to wait while its thread was not yet given a core.
        if self._clock() - self._started_s > self._limit_s / 2:
            self.unavailable = TALKS
        self._started_s = self._clock()

    def end(self) -> None:
        """The turn is over: waits for those of the other ranks."""
        self._had_turn = True
        for model in self._bare:
            model.__dict__.pop("forward", None)
        self._go_on()

    def _go_on(self) -> bool:
        """Waits for the turns of others until this rank's own has come; false if it was."""
        while self._turn < self._world_size:
            if self._turn == self._rank and not self._had_turn:
                return self._start()
            if not self._pending:
                self._meeting.arrive()
            self._pending = True
            if self._meeting.met(None if self._had_turn else self._limit_s) is None:
                self.unavailable = TALKS
                return self._start()
            self._pending = False
            self._turn += 1
        return False

    def _start(self) -> bool:
        for model in self._bare:
            model.forward = model.module.__call__
        self._started_s = self._clock()
        return True


def _only_calls(model: Any) -> bool:
    """Whether the wrapper's forward does nothing but call the module when it does not synchronise.

    Else it moves the inputs to the device, or casts them.
    """
    return not getattr(model, "device_ids", True) and (
        getattr(model, "mixed_precision", None) is None
    )
