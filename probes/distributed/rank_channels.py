"""The leading rank's view of one rank's script: beside it, or behind another supervisor."""

from __future__ import annotations

import contextlib
import time
from typing import Protocol, cast

from ...records import FileTouched
from ..process.channel import Channel, ChannelClosedError
from ..process.endings import ENDED, WorkerGone
from ..process.messages import Found, Message, Progress
from ..process.orders import AnswerT, Order
from ..process.supervisor import Worker
from .messages import (
    Bye,
    Done,
    End,
    Gone,
    Join,
    Spawn,
    from_follower,
)

SLACK_S = 10.0
"""A supervisor is heard this much later than its script may be silent."""
SCRIPT_END_S = 15.0
"""Longest wait for a supervisor to end its script."""


class Link(Protocol):
    """One rank's script."""

    rank: int

    def discover(self) -> Found: ...
    def ask(self, order: Order[AnswerT]) -> AnswerT: ...
    def kill(self) -> None: ...
    def end(self) -> list[FileTouched]: ...


class LocalLink:
    """The script that this process supervises itself."""

    def __init__(self, rank: int, worker: Worker) -> None:
        self.rank = rank
        self.worker = worker

    def discover(self) -> Found:
        """Waits for the training loop."""
        discovery, device = self.worker.discover()
        return Found(discovery=discovery, device=device, parallelism=self.worker.parallelism)

    def ask(self, order: Order[AnswerT]) -> AnswerT:
        """Has this rank do its part of an order."""
        return self.worker.ask(order)

    def kill(self) -> None:
        """Ends what is under way; whoever waits for it is told."""
        self.worker.kill()

    def end(self) -> list[FileTouched]:
        """Ends the script and all that it started."""
        self.worker.end()
        return self.worker.files


class RemoteLink:
    """The script of another rank, behind that rank's own supervisor.

    Attributes:
        lost: the supervisor itself is gone or silent.
    """

    def __init__(self, join: Join, channel: Channel) -> None:
        self.rank = join.rank
        self.join = join
        self.lost = False
        self._channel = channel
        self._silence_s = 60.0
        self._alive = False
        self._ending = False

    def spawn(self, order: Spawn) -> None:
        """Starts the script there."""
        self._silence_s = order.silence_s
        self._setup_s = order.setup_s
        self._alive, self._ending = True, False
        self._send(order)

    def discover(self) -> Found:
        """Waits for the training loop there."""
        message = self._reply(self._setup_s)
        assert isinstance(message, Found)
        return message

    def ask(self, order: Order[AnswerT]) -> AnswerT:
        """Has that rank do its part of an order."""
        self._send(order)
        message = self._reply(self._silence_s)
        assert order.is_answered_by(message)
        return cast("AnswerT", message)

    def kill(self) -> None:
        """Asks for the end; `end` waits for it."""
        if self._alive and not self._ending:
            self._ending = True
            with contextlib.suppress(WorkerGone):
                self._send(End())

    def end(self) -> list[FileTouched]:
        """Ends the script there, and waits until it is over."""
        self.kill()
        files: list[FileTouched] = []
        end_s = time.monotonic() + SCRIPT_END_S
        while self._alive and not self.lost:
            with contextlib.suppress(WorkerGone):
                message = self._hear(max(0.1, end_s - time.monotonic()))
                if isinstance(message, Done):
                    files += message.files
                    self._alive = False
        self._alive = False
        return files

    def say_goodbye(self) -> None:
        """Lets the supervisor go, and waits a moment for it."""
        if not self.lost:
            with contextlib.suppress(WorkerGone):
                self._send(Bye())
                self._hear(SCRIPT_END_S)
        self._channel.close()

    # inside ----------------------------------------------------------------------------------

    def _send(self, message: Message) -> None:
        try:
            self._channel.send(message)
        except ChannelClosedError:
            raise self._lose("its batchadvisor process is gone") from None

    def _reply(self, timeout_s: float) -> Message:
        limit_s = timeout_s
        while True:
            message = self._hear(limit_s + SLACK_S)
            if isinstance(message, Progress):
                limit_s = max(timeout_s, 10 * (message.step_s or 0.0))
            elif isinstance(message, Gone):
                raise WorkerGone(message.outcome, message.detail, message.message)
            elif isinstance(message, Done):
                self._alive = False
                raise WorkerGone("crashed", ENDED)
            else:
                return message

    def _hear(self, timeout_s: float) -> Message:
        try:
            line = self._channel.receive_line(timeout_s)
        except (ChannelClosedError, OSError):
            raise self._lose("its batchadvisor process is gone") from None
        if line is None:
            raise self._lose(f"its batchadvisor process said nothing for {timeout_s:.0f} s")
        return from_follower.decode(line)

    def _lose(self, why: str) -> WorkerGone:
        self.lost = True
        return WorkerGone("crashed", why)
