"""A rank that follows: it supervises its own script and does what rank 0 says."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ...errors import RunError
from ...records import FileTouched
from ..process.channel import Channel, ChannelClosedError
from ..process.endings import WorkerGone
from ..process.messages import Found, Message, Progress, Result
from ..process.orders import Order
from ..process.supervisor import Worker
from ..process.worker_environment import Scratch, worker_environment
from .group_worker import rank_environment
from .messages import (
    Bye,
    Done,
    End,
    Gone,
    Spawn,
    dial_supervisor,
    to_follower,
)
from .ranks import Rank
from .rendezvous import look_up

PROGRESS_PERIOD_S = 1.0


def follow(rank: Rank, environment: Mapping[str, str]) -> None:
    """Serves rank 0 until it says goodbye, or is gone.

    Raises:
        RunError: rank 0 was not found, or refused this rank.
    """
    address = look_up(rank, environment)
    try:
        channel = dial_supervisor(
            address,
            rank=rank.rank,
            world_size=rank.world_size,
            local_rank=rank.local_rank,
        )
    except OSError as error:
        msg = f"rank {rank.rank} cannot reach rank 0 at {address.host}:{address.port}: {error}."
        raise RunError(msg, "Check that the hosts can reach each other.") from error
    follower = Follower(rank, channel)
    try:
        follower.serve()
    finally:
        follower.close()


class Follower:
    """One rank's supervisor under rank 0's orders."""

    def __init__(self, rank: Rank, channel: Channel) -> None:
        self._rank = rank
        self._channel = channel
        self._scratch = Scratch()
        self._worker: Worker | None = None
        self._task: threading.Thread | None = None
        self._told_s = 0.0

    def serve(self) -> None:
        """Takes orders until the last one."""
        while True:
            try:
                line = self._channel.receive_line()
            except (ChannelClosedError, OSError):
                return  # rank 0 is gone, and the job with it
            message = to_follower.decode(line or b"")
            if isinstance(message, Bye):
                return
            if isinstance(message, Spawn):
                self._spawn(message)
            elif isinstance(message, End):
                self._end()
            else:
                self._do(message)

    def close(self) -> None:
        """Ends the script and removes temporary files."""
        self._stop()
        self._scratch.remove()
        self._channel.close()

    # inside ----------------------------------------------------------------------------------

    def _spawn(self, spawn: Spawn) -> None:
        self._stop()
        order = msgspec.structs.replace(spawn.order, scratch_folder=str(self._scratch.path))
        environment = worker_environment(order.device, self._scratch.path)
        log = Path(spawn.log)
        if not log.parent.is_dir():  # another host
            log = self._scratch.path / log.name
        log = log.with_name(f"{log.stem}-rank{self._rank.rank}{log.suffix}")
        worker = self._worker = Worker(
            order,
            log=log,
            environment=rank_environment(
                environment, self._rank, spawn.master_address, spawn.master_port
            ),
            silence_s=spawn.silence_s,
            setup_s=spawn.setup_s,
            on_progress=self._progress,
        )
        self._start(lambda: self._found(worker))

    def _do(self, order: Order[Any]) -> None:
        worker = self._worker
        if worker is None:
            self._send(Gone(outcome="crashed", detail="its script is over"))
            return
        self._join()
        self._start(lambda: worker.ask(order))

    def _found(self, worker: Worker) -> Message:
        discovery, device = worker.discover()
        return Found(discovery=discovery, device=device, parallelism=worker.parallelism)

    def _start(self, call: Callable[[], Message]) -> None:
        def task() -> None:
            try:
                answer = call()
            except WorkerGone as gone:
                answer = Gone(outcome=gone.outcome, detail=gone.detail, message=gone.message)
            if isinstance(answer, Result):  # of single steps only those of rank 0 are kept
                answer = msgspec.structs.replace(answer, steps=())
            self._send(answer)

        self._task = threading.Thread(target=task, name="trial", daemon=True)
        self._task.start()

    def _end(self) -> None:
        files = self._stop()
        self._send(Done(files=tuple(files)))

    def _stop(self) -> list[FileTouched]:
        worker = self._worker
        if worker is None:
            return []
        worker.kill()
        self._join()
        worker.end()
        self._worker = None  # not before: an interrupt would lose it
        return list(worker.files)

    def _join(self) -> None:
        if self._task is not None:
            self._task.join()
            self._task = None

    def _progress(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._told_s >= PROGRESS_PERIOD_S:
            self._told_s = now
            self._send(progress)

    def _send(self, message: Message) -> None:
        with contextlib.suppress(ChannelClosedError):
            self._channel.send(message)
