"""How often the script's process says how far it is: rarely while steps are timed.

Every message wakes the supervisor, which then runs on the cores whose steps are timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ..process.messages import Phase

PERIOD_S = 0.2
"""Seconds between two signs of life where no step time is taken."""
QUIET_PERIOD_S = 5.0
"""Seconds between two signs of life while steps are timed or profiled: each wakes the supervisor,
which then runs on the cores whose steps are timed."""
SILENCE_SHARE = 0.1
"""Share of the longest allowed silence that no period between two signs exceeds."""
QUIET_PHASES: frozenset[Phase] = frozenset({"timing", "counting", "profiling"})
"""Phases whose steps are measured."""


class SignsOfLife:
    """Decides at each step boundary whether a sign of life is due.

    Args:
        silence_s: after so long without one the supervisor takes the process for hung. Two
            signs lie less than a fifth of it apart, or the length of one step.
        clock: monotonic seconds.
    """

    def __init__(self, silence_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._longest_s = silence_s * SILENCE_SHARE
        self._clock = clock
        self._phase: Phase | None = None
        self._last_s = 0.0

    def begin(self) -> None:
        """Another trial: its first boundary is told."""
        self._phase = None

    def due(self, phase: Phase) -> bool:
        """Whether to say something now; a new phase is always told."""
        now = self._clock()
        period_s = min(QUIET_PERIOD_S if phase in QUIET_PHASES else PERIOD_S, self._longest_s)
        if phase == self._phase and now - self._last_s < period_s:
            return False
        self._phase, self._last_s = phase, now
        return True
