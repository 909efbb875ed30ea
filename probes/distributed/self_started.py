"""The supervisor of a script that starts its ranks itself: it talks to each rank directly."""

from __future__ import annotations

import contextlib
import os
import queue
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from ...records import DeviceInfo, Discovery, FileTouched
from ..process.channel import Channel, ChannelClosedError
from ..process.endings import ENDED, NoRanks, WorkerGone, over
from ..process.messages import CannotSteer, Found, Message, Progress
from ..process.orders import AnswerT, GoOn, Lockstep, Order
from ..process.supervisor import Worker
from ..process.worker_listener import LastWords, Silence, WorkerListener
from ..worker.run_script import is_idle
from .messages import channel_over
from .rank_channels import Link, LocalLink
from .rank_coordinator import RankCoordinator
from .ranked_worker import RankedWorker
from .ranks import SELF_STARTED, Rank
from .rendezvous import new_token

PROGRAM_S = 60.0
"""A rank that is a program of its own comes so soon: before anything of the script runs in it."""


class AttachedLink:
    """One rank that the script started.

    Args:
        rank: its number.
        channel: to it.
        worker: the process that started it, and with which it is ended.
    """

    def __init__(self, rank: int, channel: Channel, worker: Worker) -> None:
        self.rank = rank
        self.listener = WorkerListener(channel, lambda _: None)
        self.silence_s = 60.0
        self.setup_s = 600.0
        self._outcome: Found | WorkerGone | None = None
        self._channel = channel
        self._worker = worker

    def trains(self) -> bool:
        """Waits for the training loop; false where the process ended well and trained nothing."""
        try:
            message: Found = self._hear(self.setup_s, lambda heard: isinstance(heard, Found))
        except WorkerGone as gone:
            if not is_idle(gone.message):
                raise
            self._outcome = gone
            return False
        self._outcome = message
        return True

    def discover(self) -> Found:
        """Waits for the training loop."""
        if self._outcome is None:
            self.trains()
        if isinstance(self._outcome, WorkerGone):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome

    def ask(self, order: Order[AnswerT]) -> AnswerT:
        """Has this rank do its part of an order."""
        self._send(order)
        answer: AnswerT = self._hear(self.silence_s, order.is_answered_by)
        return answer

    def kill(self) -> None:
        """Ends all ranks: they live and die with the process that started them."""
        self._worker.kill_all()

    def end(self) -> list[FileTouched]:
        """After `kill`: hangs up."""
        self._channel.close()
        return self.listener.files

    def let_go(self) -> None:
        """Lets a process that trained nothing end as it would alone."""
        with contextlib.suppress(WorkerGone):
            self._send(GoOn())
        self._channel.close()

    def _send(self, message: Message) -> None:
        try:
            self._channel.send(message)
        except ChannelClosedError:
            raise self._died() from None

    def _died(self) -> WorkerGone:
        return WorkerGone("crashed", ENDED if self._worker.ended else "its process died")

    def _hear(self, timeout_s: float, is_awaited: Callable[[Message], bool]) -> Any:
        while True:
            try:
                message = self.listener.next(timeout_s)
            except (ChannelClosedError, OSError):
                raise self._died() from None
            except Silence as silence:
                detail = f"nothing was heard for {silence.limit_s:.3g} s"
                raise WorkerGone("hung", detail) from None
            except LastWords as last:
                raise over(last.message) from None
            if is_awaited(message):
                return message


class SelfStarted(RankedWorker):
    """The ranks of one process of the script; to the session it looks like one worker.

    Args:
        worker: the process that is about to start ranks and waits for us.
        own_rank: which of the `world_size` ranks it is itself; `None` if it only waits for them.
        silence_s, setup_s, on_progress: as of a worker.
    """

    def __init__(
        self,
        worker: Worker,
        world_size: int,
        *,
        own_rank: int | None = None,
        silence_s: float,
        setup_s: float,
        on_progress: Callable[[Progress], None],
    ) -> None:
        job = Rank(
            rank=0,
            world_size=world_size,
            local_rank=0,
            local_world_size=world_size,
            launcher=SELF_STARTED,
        )
        pool = ThreadPoolExecutor(world_size, thread_name_prefix="rank")
        super().__init__(job, worker.order, worker.log, pool)
        self._worker = worker
        self._own_rank = own_rank
        self._referee = RankCoordinator("127.0.0.1", new_token(), world_size)
        self._attached: list[AttachedLink] = []
        address = self._referee.address
        plan = Lockstep(
            rank=0,
            world_size=world_size,
            host=address.host,
            port=address.port,
            token=address.token,
            generation=0,
        )
        worker.send(msgspec.structs.replace(worker.order, lockstep=plan))
        wait_s = setup_s if own_rank is None else min(setup_s, PROGRAM_S)
        try:
            self._wait(world_size, time.monotonic() + wait_s)
        except BaseException:
            self.end()
            raise
        for link in self._attached:
            link.silence_s, link.setup_s = silence_s, setup_s
        if own_rank is None:
            self._attached[0].listener.on_progress = on_progress
        else:
            worker.order = msgspec.structs.replace(
                worker.order, lockstep=msgspec.structs.replace(plan, rank=own_rank)
            )

    @property
    def pid(self) -> int:
        """Id of the process that started the ranks."""
        return self._worker.pid

    @property
    def versions(self) -> Any:
        """Versions that the process which started the ranks told."""
        return self._worker.versions

    @property
    def files(self) -> list[FileTouched]:
        """Files that the script touched, in any of its processes."""
        told = (file for link in self._attached for file in link.listener.files)
        return [*self._worker.files, *told]

    def discover(self, until_s: float | None = None) -> tuple[Discovery, DeviceInfo]:
        """Waits until the training loop is found on every rank.

        Args:
            until_s: means nothing here, as for all ranks.

        Raises:
            NoRanks: what the script started did something else, and was let go.
            WorkerGone: it was not found.
        """
        if self._own_rank is None:
            attached = {link.rank: link for link in self._attached}
            if not any(self._all(lambda link: attached[link.rank].trains())):
                self._let_go()
                raise NoRanks
        return super().discover(until_s)

    def _let_go(self) -> None:
        for link in self._attached:
            self._worker.add_files(link.listener.files)
            link.let_go()
        self._referee.close()
        self._pool.shutdown(wait=False)

    def _hosts(self) -> dict[int, tuple[str, int]]:
        return {link.rank: (os.uname().nodename, link.rank) for link in self._links()}

    def _links(self) -> list[Link]:
        links: list[Link] = list(self._attached)
        if self._own_rank is not None:
            links.append(LocalLink(self._own_rank, self._worker))
        return sorted(links, key=lambda link: link.rank)

    def _kill_all(self) -> None:
        # Not the group alone: a rank may have a session of its own, and its parent must live
        # until it is found.
        self._worker.kill_all()

    def _end_all(self) -> None:
        self._worker.kill_all()
        self._wait_for_busy()
        self._worker.end()
        for link in self._attached:
            link.end()
        self._referee.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _start_again(self) -> bool:
        return False  # ranks start only with their script; there is no other port to try

    def _wait(self, world_size: int, end_s: float) -> None:
        links: dict[int, AttachedLink] = {}
        awaited = {*range(world_size)} - {self._own_rank}
        while links.keys() < awaited:
            try:
                join, connection = self._referee.supervisors.get(timeout=0.2)
            except queue.Empty:
                try:
                    self._worker.check()
                except WorkerGone:
                    for link in links.values():
                        link.end()
                    raise
                if time.monotonic() > end_s:
                    for link in links.values():
                        link.end()
                    raise _missing(world_size, sorted(awaited - links.keys())) from None
                continue
            if join.rank not in awaited or join.rank in links:
                connection.close()
                continue
            links[join.rank] = AttachedLink(join.rank, channel_over(connection), self._worker)
        self._attached = [links[number] for number in sorted(links)]


def _missing(world_size: int, ranks: list[int]) -> WorkerGone:
    names = ", ".join(map(str, ranks))
    return WorkerGone(
        "no_step",
        "ranks are missing",
        CannotSteer(
            reason=f"of the {world_size} ranks that the script starts, {names} did not come",
            remedy=f"start them from outside: batchadvisor run --nproc-per-node {world_size} "
            "SCRIPT.",
        ),
    )
