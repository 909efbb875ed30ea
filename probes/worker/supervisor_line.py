"""The line from the script to the supervisor. Where it is cut, the script's process ends."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Protocol

from ...records import FileTouched
from ..process.channel import ChannelClosedError
from ..process.messages import Message, Phase, Progress, Touched
from ..process.orders import decode_to_worker

PERIOD_S = 0.2
"""Seconds between two signs of life where no step time is taken."""
QUIET_PERIOD_S = 5.0
"""Seconds between two signs of life while steps are timed or profiled: each wakes the supervisor,
which then runs on the cores whose steps are timed."""
SILENCE_SHARE = 0.1
"""Share of the longest allowed silence that no period between two signs exceeds."""
QUIET_PHASES: frozenset[Phase] = frozenset({"timing", "counting", "profiling"})
"""Phases whose steps are measured."""


class LineEnd(Protocol):
    """What carries the messages: pipes, or nothing where both sides are in one process."""

    def send(self, message: Message) -> None: ...
    def receive_line(self) -> bytes | None: ...


class SupervisorLine:
    """Sends what happens, and waits for what is to be done.

    Args:
        channel: to the supervisor.
        silence_s: after so long without a sign of life the supervisor takes us for hung.
        touched: takes the files that the script opened since it was last asked.
    """

    def __init__(
        self, channel: LineEnd, silence_s: float, touched: Callable[[], tuple[FileTouched, ...]]
    ) -> None:
        self._channel = channel
        self._touched = touched
        self._signs = SignsOfLife(silence_s)

    def receive(self) -> Any:
        """The next order."""
        try:
            line = self._channel.receive_line()
        except ChannelClosedError:
            os._exit(0)  # the supervisor is gone or has enough; no clean-up code of the script
        return decode_to_worker(line or b"")

    def send(self, message: Any) -> None:
        """Tells the supervisor something."""
        try:
            self._channel.send(message)
        except ChannelClosedError:
            os._exit(0)

    def send_files(self) -> None:
        """Tells of the files that the script touched meanwhile, if there are any."""
        files = self._touched()
        if files:
            self.send(Touched(files=files))

    def begin_task(self) -> None:
        """The first boundary of a task is told, whatever was told before."""
        self._signs.begin()

    def show(
        self,
        phase: Phase,
        *,
        num_steps: int,
        batch_size: int | None = None,
        step_s: float | None = None,
    ) -> None:
        """A sign of life, if one is due."""
        if self._signs.due(phase):
            self.send(
                Progress(phase=phase, batch_size=batch_size, num_steps=num_steps, step_s=step_s)
            )


def wait_for_the_end() -> None:
    """Nothing more is to be done here: the supervisor ends this process."""
    while True:
        time.sleep(3600)


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
