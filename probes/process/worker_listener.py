"""Listening to one process of the script, by whatever way it is connected."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from ...records import FileTouched, Versions
from .channel import Channel
from .messages import (
    CannotSteer,
    Ended,
    FromWorker,
    Hello,
    Progress,
    Raised,
    Touched,
    decode_from_worker,
)


class Silence(Exception):  # noqa: N818  a fact about the other side, no error of ours
    """Nothing was heard for `limit_s` seconds."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(limit_s)
        self.limit_s = limit_s


class TimeOver(Exception):  # noqa: N818  a bound that was set, no error
    """A message did not come within its time."""


class LastWords(Exception):  # noqa: N818  a normal way for a script to end
    """The script is over, and says how."""

    def __init__(self, message: Raised | Ended | CannotSteer) -> None:
        super().__init__(message)
        self.message = message


class WorkerListener:
    """Takes care of signs of life and notes, and hands on what answers a question.

    Args:
        channel: to the process.
        on_progress: told of every sign of life.

    Attributes:
        files, versions: what the process told of them.
    """

    def __init__(self, channel: Channel, on_progress: Callable[[Progress], None]) -> None:
        self._channel = channel
        self.on_progress = on_progress
        self.files: list[FileTouched] = []
        self.versions: Versions | None = None
        self._kept: deque[FromWorker] = deque()

    def next(self, timeout_s: float, until_s: float | None = None) -> FromWorker:
        """The next message that is neither a sign of life nor a note.

        Args:
            until_s: waits no longer than up to this moment, by `time.monotonic`.

        Raises:
            TimeOver: that moment has come.
            ChannelClosedError: the process is gone.
            Silence: nothing was heard for `timeout_s`, or for ten steps where they take longer.
            LastWords: the script is over.
        """
        limit_s = timeout_s
        while not self._kept:
            left_s = None if until_s is None else until_s - time.monotonic()
            short = left_s is not None and left_s < limit_s
            line = self._channel.receive_line(max(0.0, left_s or 0.0) if short else limit_s)
            if line is None:
                raise TimeOver if short else Silence(limit_s)
            message = decode_from_worker(line)
            if isinstance(message, Progress):
                # A slow step is not a hang: the next may take several times as long.
                limit_s = max(timeout_s, 10 * (message.step_s or 0.0))
            self._take(message)
        return self._kept.popleft()

    def read_waiting(self) -> None:
        """Takes what has come, without waiting; what answers a question is kept for `next`.

        Raises:
            ChannelClosedError: the process is gone.
            LastWords: the script is over.
        """
        while (line := self._channel.receive_line(0.0)) is not None:
            self._take(decode_from_worker(line))

    def _take(self, message: FromWorker | None) -> None:
        if isinstance(message, Progress):
            self.on_progress(message)
        elif isinstance(message, Touched):
            self.files += message.files
        elif isinstance(message, Hello):
            self.versions = message.versions
        elif isinstance(message, (Raised, Ended, CannotSteer)):
            raise LastWords(message)
        elif message is not None:
            self._kept.append(message)
