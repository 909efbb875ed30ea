"""A live function on all ranks of a job of torch.distributed, whose process group exists already.

    rank 0: the session ── LeadingWorker ── order ──►  rank 1: follow
                 its own LocalWorker                       its own LocalWorker
                           └────── agree, at each step ──────┘

All that the ranks tell each other goes through a process group of gloo's, made for this.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
import torch
import torch.distributed as dist

from ...errors import BatchAdvisorError, RunError
from ...records import (
    DeviceInfo,
    Discovery,
    Distribution,
    FileTouched,
    RankInfo,
    Versions,
)
from ..process.endings import WorkerGone
from ..process.orders import AnswerT, Order, WorkOrder
from ..worker.live import LocalWorker, RankFailedError
from ..worker.parallelism import recognise
from .merged_trial import of_all_ranks
from .messages import Gone
from .ranked_worker import cause_of, rank_infos, share_of, with_rank
from .ranks import detect_rank

MEETING = timedelta(minutes=10)
"""Longest wait for another rank."""
IN_TORCH = "torch.distributed"
"""Who started the ranks, where no launcher says it."""

T = TypeVar("T")


class LiveRanks:
    """The ranks of the job, which all called the same function. See worker.live.Ranks.

    Raises:
        RunError: not all ranks came.
    """

    def __init__(self) -> None:
        try:
            self._group = dist.new_group(backend="gloo", timeout=MEETING)
            self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
            here = os.uname().nodename
            told = detect_rank(os.environ)
            local = self.rank if told is None else told.local_rank
            self.hosts: list[tuple[str, int]] = self.gather((here, local))
        except RuntimeError as error:
            raise RunError(
                f"the ranks of this job did not meet: {str(error).splitlines()[0]}.",
                "Call the function on every rank.",
            ) from error
        self.num_here = sum(host == here for host, _ in self.hosts)
        self.launcher = IN_TORCH if told is None else told.launcher

    @property
    def leads(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    def agree(self, decision: bool) -> bool:
        """Waits for all ranks and returns what rank 0 decided.

        Raises:
            RankFailedError: a rank said `failed` meanwhile.
        """
        said = self._meet(_YES if decision else _NO)
        if _FAILED in said:
            raise RankFailedError(f"rank {said.index(_FAILED)}")
        return said[0] == _YES

    def failed(self) -> None:
        """Tells those that wait in `agree` that this rank does not go on."""
        self._meet(_FAILED)

    def tell(self, what: Any = None) -> Any:
        """Returns on every rank what rank 0 gave."""
        box = [what]
        dist.broadcast_object_list(box, src=0, group=self._group)
        return box[0]

    def gather(self, part: T) -> list[T]:
        """Returns on every rank the parts of all ranks, in order."""
        parts: list[Any] = [None] * self.world_size
        dist.all_gather_object(parts, part, group=self._group)
        return parts

    def raise_any(self, error: BatchAdvisorError | None) -> None:
        """Raises on all ranks what one of them cannot go on with."""
        errors = self.gather(error)
        if error is not None:
            raise error
        for rank, other in enumerate(errors):
            if other is not None:
                other.args = (f"rank {rank}: {other.what}",)
                other.what = other.args[0]
                raise other

    def close(self) -> None:
        """Ends the process group of ours."""
        dist.destroy_process_group(self._group)

    def _meet(self, flag: int) -> list[int]:
        flags = [torch.empty(1, dtype=torch.uint8) for _ in range(self.world_size)]
        dist.all_gather(flags, torch.tensor([flag], dtype=torch.uint8), group=self._group)
        return [int(one) for one in flags]


_NO, _YES, _FAILED = range(3)


def live_ranks() -> LiveRanks | None:
    """The ranks of the job that this process belongs to; `None` where it is alone.

    Raises:
        RunError: not all ranks came.
    """
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return None
    return LiveRanks()


# The orders of rank 0.


class Start(msgspec.Struct, frozen=True):
    """Make a worker."""

    order: WorkOrder


class Discover(msgspec.Struct, frozen=True):
    """Make the first steps."""


class Run(msgspec.Struct, frozen=True):
    """Run one size."""

    order: Order[Any]


class End(msgspec.Struct, frozen=True):
    """Let go of what the worker holds."""


class Over(msgspec.Struct, frozen=True):
    """The last order.

    Attributes:
        result: of rank 0's session.
        error: why there is none.
    """

    result: Any = None
    error: BaseException | None = None


class LeadingWorker:
    """The function on every rank; to the session it is one worker.

    Args:
        worker: of this rank.
    """

    in_use: tuple[()] = ()

    def __init__(self, ranks: LiveRanks, worker: LocalWorker) -> None:
        self._ranks = ranks
        self._worker = worker
        self._infos: tuple[RankInfo, ...] = ()
        self._found: list[tuple[Discovery, DeviceInfo]] = []
        ranks.tell(Start(worker.order))

    @property
    def order(self) -> WorkOrder:
        """What it was told."""
        return self._worker.order

    @property
    def pid(self) -> int:
        """This process."""
        return self._worker.pid

    @property
    def versions(self) -> Versions | None:
        """Versions on this rank."""
        return self._worker.versions

    @property
    def files(self) -> list[FileTouched]:
        """Files that the steps touched, on this rank."""
        return self._worker.files

    @property
    def distribution(self) -> Distribution:
        """The ranks, and what they are."""
        return Distribution(
            world_size=self._ranks.world_size,
            launcher=self._ranks.launcher,
            ranks=self._infos,
            parallelism=recognise(self._worker.parameters()),
        )

    def was_stopped(self) -> bool:
        """See `LocalWorker`."""
        return False

    def discover(self, until_s: float | None = None) -> tuple[Discovery, DeviceInfo]:
        """Makes the first steps on all ranks.

        Raises:
            WorkerGone: they failed on one.
        """
        self._ranks.tell(Discover())
        found = together(self._ranks, lambda: self._worker.discover(until_s))
        num = self._ranks.num_here
        self._infos = rank_infos(found, self._ranks.hosts, num)
        discovery, device = found[0]
        return discovery, share_of(device, num)

    def takes(self, kind: type[Order[Any]]) -> bool:
        """What the worker of each rank takes."""
        return self._worker.takes(kind)

    def ask(self, order: Order[AnswerT], until_s: float | None = None) -> AnswerT:
        """Runs one size on all ranks.

        Args:
            until_s: means nothing here, as in `LocalWorker`.

        Raises:
            WorkerGone: one of them failed.
        """
        self._ranks.tell(Run(order))
        return of_all_ranks(together(self._ranks, lambda: self._worker.ask(order, until_s)))

    def end(self) -> None:
        """Lets go of what the steps hold, on all ranks."""
        self._ranks.tell(End())
        self._worker.end()


def follow(ranks: LiveRanks, make_worker: Callable[[WorkOrder], LocalWorker]) -> Any:
    """Does what rank 0 says; returns the result of its session.

    Args:
        make_worker: for the step of this rank.

    Raises:
        BaseException: what its session raised.
    """
    worker: LocalWorker | None = None
    pressed: KeyboardInterrupt | None = None
    while True:
        order = ranks.tell()
        if isinstance(order, Over):
            if pressed is not None:
                raise pressed
            if order.error is not None:
                raise order.error
            return order.result
        try:
            if isinstance(order, Start):
                worker = make_worker(order.order)
                continue
            assert worker is not None
            if isinstance(order, Discover):
                together(ranks, worker.discover)
            elif isinstance(order, Run):
                ask, asked = worker.ask, order.order
                together(ranks, lambda: ask(asked))  # noqa: B023  called at once
            else:
                worker.end()
        except WorkerGone:
            continue  # rank 0 knows
        except KeyboardInterrupt as error:
            pressed = error


def together(ranks: LiveRanks, call: Callable[[], T]) -> list[T]:
    """Calls on this rank, and gathers what came of it on all.

    Raises:
        WorkerGone: a rank failed; the one that failed by itself is named.
        KeyboardInterrupt: a rank was interrupted.
    """
    ours: Any
    try:
        ours = call()
    except WorkerGone as failed:
        ours = Gone(outcome=failed.outcome, detail=failed.detail, message=failed.message)
    except KeyboardInterrupt:
        ours = _INTERRUPTED
    parts = ranks.gather(ours)
    if _INTERRUPTED in parts:
        raise KeyboardInterrupt
    gone = {
        rank: WorkerGone(part.outcome, part.detail, part.message)
        for rank, part in enumerate(parts)
        if isinstance(part, Gone)
    }
    if gone:
        raise with_rank(*cause_of(gone))
    return parts


_INTERRUPTED = "interrupted"
