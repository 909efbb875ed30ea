"""Times of steps on a device that runs behind the host.

The host of such a device only queues work. What passes between two of its steps is the time that
queueing takes: a tenth of the truth where nothing is read from the device, many steps' time where
something is. So a step's time is taken from stretches of steps that begin and end at the same kind
of moment: the device passing a mark between two steps, without anybody waiting for it.

    steps   ───┬─────┬─────┬─────┬─────┬───
    marks      A                 B         piece: the steps between A and B, all of one kind
    stretch    several pieces of one kind, not necessarily next to each other
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from .step_kinds import StepKind, Stretch

MAX_PENDING_PIECES = 512
"""Pieces that the device has not passed; beyond that a piece goes on."""
PIECES_PER_PERIOD = 32
LONGEST_PERIODS = 20
"""Marks come seldom as pieces add up: so many times the first distance at most."""
ASK_AGAIN_S = 0.01
DENSE = 10
"""After an epoch without one whole piece, marks come so many times as often."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """A clock for the device's work.

    Attributes:
        clock: what it is, to be said after a time.
        period_ns: shortest time between two marks.
        mark: a moment between two steps; `None` where none can be had now.
        elapsed_s: seconds between two marks; `None` while the device has not passed the second.
    """

    clock: str
    period_ns: int
    mark: Callable[[], Any]
    elapsed_s: Callable[[Any, Any], float | None]


class _Piece(NamedTuple):
    kind: StepKind
    steps: int
    wait_ns: int
    begin: Any
    end: Any


class Pacer:
    """Sets marks between steps and books what lies between them, once the device has passed.

    A failure of the device's ends the timing, never the training: `problem` says it.

    Args:
        timeline: of the device.
        book: takes a kind of step and a piece of it.
    """

    def __init__(self, timeline: Timeline, book: Callable[[StepKind, Stretch], None]) -> None:
        self.timeline = timeline
        self.problem = ""
        self._book = book
        self._pending: deque[_Piece] = deque()
        self._num_pieces = 0
        self._dense = False
        self._begin: Any = None
        self._last: Any = None
        self._kind: StepKind | None = None
        self._steps = self._wait_ns = 0
        self._clean = True
        self._whole_since_pause = False

    def step(self, kind: StepKind, wait_ns: int, *, settled: bool) -> None:
        """A step ended.

        Args:
            kind: of step.
            wait_ns: for its data.
            settled: whether it followed one of its kind, and nothing disturbed it.
        """
        if not settled or (self._kind is not None and self._kind is not kind):
            self._clean = False
        self._kind = kind
        self._steps += 1
        self._wait_ns += wait_ns

    def spoil(self) -> None:
        """Something is under way that belongs to no step."""
        self._clean = False

    def stop(self) -> None:
        """The last step's work is queued: the piece ends here."""
        self._last = None
        if not self._steps or self._begin is None or not self._clean:
            self._begin = None
            return
        if len(self._pending) >= MAX_PENDING_PIECES:
            self.collect()
            if len(self._pending) >= MAX_PENDING_PIECES:
                return  # the piece goes on
        self._last = self._mark()
        if self._last is not None and self._kind is not None:
            piece = _Piece(self._kind, self._steps, self._wait_ns, self._begin, self._last)
            self._pending.append(piece)
            self._num_pieces += 1
            self._whole_since_pause = True
            self.collect()
        self._begin = None

    def start(self, now_ns: int, *, at_once: bool) -> int:
        """The next piece begins.

        Args:
            now_ns: by the host's clock.
            at_once: nothing happened since `stop`, so that its mark serves.

        Returns:
            When the next mark is wanted, by the host's clock.
        """
        if self._begin is None:
            self._begin = self._last if at_once and self._last is not None else self._mark()
            self._kind, self._clean = None, True
            self._steps = self._wait_ns = 0
        period_ns = self.timeline.period_ns
        if self._dense:
            return now_ns + period_ns // DENSE
        return now_ns + period_ns * min(LONGEST_PERIODS, 1 + self._num_pieces // PIECES_PER_PERIOD)

    def pause(self, *, epoch_ended: bool) -> None:
        """Something that is no training follows."""
        self.stop()
        self._begin = None
        if epoch_ended:
            self._dense = not self._whole_since_pause
            self._whole_since_pause = False

    def collect(self) -> None:
        """Books the pieces that the device is through with."""
        pending = self._pending
        while pending:
            piece = pending[0]
            try:
                elapsed_s = self.timeline.elapsed_s(piece.begin, piece.end)
            except Exception as error:  # noqa: BLE001
                self._give_up(error)
                return
            if elapsed_s is None:
                return
            pending.popleft()
            stretch = Stretch(piece.steps, round(elapsed_s * 1e9), piece.wait_ns)
            self._book(piece.kind, stretch)

    def follow(self, limit_s: float) -> None:
        """The last pieces, as the device gets through with them; it is asked, never waited for."""
        began_s = time.monotonic()
        self.collect()
        while self._pending and time.monotonic() - began_s < limit_s:
            time.sleep(ASK_AGAIN_S)
            self.collect()

    def _mark(self) -> Any:
        if self.problem:
            return None
        try:
            return self.timeline.mark()
        except Exception as error:  # noqa: BLE001  what is wrong shows in the user's own next call
            self._give_up(error)
            return None

    def _give_up(self, error: Exception) -> None:
        text = str(error).splitlines()
        self.problem = f"{type(error).__name__}: {text[0][:200] if text else ''}"
        self._pending.clear()
