"""The script on all ranks of a job, whoever started them: to the session it is one worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...records import (
    DeviceInfo,
    Discovery,
    Distribution,
    FileTouched,
    Parallelism,
    RankInfo,
    Versions,
)
from ..process.endings import ENDED, WAITED, WorkerGone
from ..process.messages import Found, Raised
from ..process.orders import AnswerT, Order, RunPairs, RunTrial, WorkOrder
from .merged_trial import of_all_ranks
from .rank_channels import SCRIPT_END_S, Link
from .ranks import Rank

RANKS_GRACE_S = 3.0
"""After one rank failed the others have so long to say how they fared."""
MAX_PORTS = 3
"""Ports that are tried in turn where somebody else takes them first."""

T = TypeVar("T")


class RankedWorker(ABC):
    """The script on every rank.

    Args:
        job: as rank 0 has it.
        order: what the script was told.
        log: where its output goes.
        pool: with a thread for each rank.

    Attributes:
        job, order, log: as above.
        ranks, parallelism: what all ranks found, after `discover`.
        in_use: empty: the ranks' GPUs are those that the script chose.
    """

    in_use: tuple[()] = ()

    def __init__(self, job: Rank, order: WorkOrder, log: Path, pool: ThreadPoolExecutor) -> None:
        self.job = job
        self.order = order
        self.log = log
        self.ranks: tuple[RankInfo, ...] = ()
        self.parallelism: Parallelism | None = None
        self._pool = pool
        self._busy: set[Future[Any]] = set()
        self._ended = False

    # what depends on who started them ---------------------------------------------------------

    @property
    @abstractmethod
    def pid(self) -> int:
        """Id of the process that stands for the script."""

    @property
    @abstractmethod
    def versions(self) -> Versions | None:
        """Versions that this process told."""

    @property
    @abstractmethod
    def files(self) -> list[FileTouched]:
        """Files that the script touched, on any rank."""

    @abstractmethod
    def _links(self) -> list[Link]:
        """All ranks, in order."""

    @abstractmethod
    def _hosts(self) -> dict[int, tuple[str, int]]:
        """Host name and local rank of each rank."""

    @abstractmethod
    def _start_again(self) -> bool:
        """Starts the script anew on another port, where that can be done."""

    @abstractmethod
    def _kill_all(self) -> None:
        """Ends the script's processes, without waiting."""

    @abstractmethod
    def _end_all(self) -> None:
        """Ends them and keeps what they said about files; may be called again."""

    # what a worker does -----------------------------------------------------------------------

    @property
    def distribution(self) -> Distribution:
        """The ranks, and what they are."""
        return Distribution(
            world_size=self.job.world_size,
            launcher=self.job.launcher,
            ranks=self.ranks,
            parallelism=self.parallelism,
        )

    def was_stopped(self) -> bool:
        """False: several processes, of which each rank's own evidence tells."""
        return False

    def discover(self, until_s: float | None = None) -> tuple[Discovery, DeviceInfo]:
        """Waits until the training loop is found on every rank.

        Args:
            until_s: means nothing here: several ranks take as long as they need.

        Raises:
            WorkerGone: it was not; the rank that failed by itself is named.
        """
        del until_s
        for attempt in range(MAX_PORTS):
            try:
                loops = self._all(lambda link: link.discover())
            except WorkerGone as gone:
                again = port_was_taken(gone) and attempt < MAX_PORTS - 1 and not self._ended
                if again and self._start_again():
                    continue
                raise
            break
        self._note(loops)
        first = loops[0]
        return first.discovery, share_of(first.device, self.job.local_world_size)

    def takes(self, kind: type[Order[Any]]) -> bool:
        """What every rank can do its part of."""
        return kind in (RunTrial, RunPairs)

    def ask(self, order: Order[AnswerT], until_s: float | None = None) -> AnswerT:
        """Gives an order to every rank; the answer is that of all.

        Args:
            until_s: means nothing here, as in `discover`.

        Raises:
            WorkerGone: a rank is over, and so are all.
        """
        del until_s
        return of_all_ranks(self._all(lambda link: link.ask(order)))

    def end(self) -> None:
        """Ends the script on every rank; where Ctrl-C cuts it short, another call does the rest."""
        if not self._ended:
            self._end_all()
            self._ended = True

    # inside ----------------------------------------------------------------------------------

    def _all(self, call: Callable[[Link], T]) -> list[T]:
        """Calls all ranks at once; the first that is over ends all, within a bounded time."""
        links = self._links()
        futures = [self._pool.submit(lambda link=link: call(link)) for link in links]  # type: ignore[misc]
        self._busy = set(futures)
        waiting = wait(futures, return_when=FIRST_EXCEPTION).not_done
        if waiting:
            wait(waiting, timeout=RANKS_GRACE_S)
            self._kill_all()
            wait(waiting, timeout=SCRIPT_END_S)
        self._busy = set()
        gone: dict[int, WorkerGone] = {}
        for link, future in zip(links, futures, strict=True):
            if not future.done():
                gone[link.rank] = WorkerGone("hung", "it could not be ended")
                continue
            error = future.exception()
            if isinstance(error, WorkerGone):
                gone[link.rank] = error
            elif error is not None:
                raise error
        if gone:
            raise with_rank(*cause_of(gone))
        return [future.result() for future in futures]

    def _wait_for_busy(self) -> None:
        """Interrupted in the middle of a call: its threads come first."""
        if self._busy:
            wait(self._busy, timeout=SCRIPT_END_S)
            self._busy = set()

    def _note(self, loops: list[Found]) -> None:
        hosts = self._hosts()
        self.parallelism = loops[0].parallelism
        self.ranks = rank_infos(
            [(loop.discovery, loop.device) for loop in loops],
            [hosts[number] for number in range(len(loops))],
            self.job.local_world_size,
        )


def rank_infos(
    found: Sequence[tuple[Discovery, DeviceInfo]], hosts: Sequence[tuple[str, int]], num_here: int
) -> tuple[RankInfo, ...]:
    """What all ranks are, in order.

    Args:
        found: by each.
        hosts: host name and local rank of each.
        num_here: ranks that share a host.
    """
    return tuple(
        RankInfo(
            rank=rank,
            local_rank=local_rank,
            host=host,
            device=discovery.parameter_device,
            device_name=device.name,
            capacity_bytes=share_of(device, num_here).capacity_bytes,
        )
        for rank, ((discovery, device), (host, local_rank)) in enumerate(
            zip(found, hosts, strict=True)
        )
    )


def share_of(device: DeviceInfo, num: int) -> DeviceInfo:
    """A rank's share of a device: on a CPU the `num` ranks of one host share its memory."""
    if device.kind != "cpu" or num == 1 or device.limit_bytes is not None:
        return device
    return msgspec.structs.replace(
        device,
        capacity_bytes=device.capacity_bytes // num,
        capacity_source=f"a rank's share, 1 of {num}, of: {device.capacity_source}",
    )


# Several ranks are over: which of them failed by itself, and which only because of it.

_CONSEQUENCES = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "connection was aborted",
    "broken pipe",
    "socket timeout",
    "timed out waiting",
    "remote process exited",
    "unhandled system error",
    "ncclremoteerror",
    "watchdog caught",
    "failed to recv",
    "gloo",
)
"""Messages of collectives when another rank is gone, in lower case."""

_ORDER = ("out_of_memory", "exception", "crashed", "no_step", "script_ended", "hung")


def cause_of(gone: Mapping[int, WorkerGone]) -> tuple[int, WorkerGone]:
    """The rank that failed first in the order of causes, and how.

    A rank out of memory explains the others' broken connections and hangs; a crash explains
    them too; a broken connection explains nothing, nor does a rank that we ended ourselves.
    """
    return min(gone.items(), key=lambda item: (_class(item[1]), item[0]))


def with_rank(rank: int, gone: WorkerGone) -> WorkerGone:
    """Returns the failure with its rank in the detail."""
    return WorkerGone(gone.outcome, f"rank {rank}: {gone.detail}", gone.message)


def port_was_taken(gone: WorkerGone) -> bool:
    """Whether somebody else took the agreed port before the script did."""
    text = gone.message.text.lower() if isinstance(gone.message, Raised) else ""
    return "eaddrinuse" in text or "address already in use" in text


def _class(gone: WorkerGone) -> int:
    if gone.outcome == "exception" and _is_consequence(gone):
        return len(_ORDER)
    if gone.detail == ENDED:
        return len(_ORDER) + 2
    if gone.outcome == "hung" and gone.detail.endswith(WAITED):
        return len(_ORDER) + 1
    return _ORDER.index(gone.outcome) if gone.outcome in _ORDER else len(_ORDER)


def _is_consequence(gone: WorkerGone) -> bool:
    text = gone.detail.lower()
    if isinstance(gone.message, Raised):
        text += gone.message.text.lower()
    return any(part in text for part in _CONSEQUENCES)
