"""The script on every rank of a group, which to the session looks like one worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ...records import (
    DeviceInfo,
    Discovery,
    FileTouched,
    Parallelism,
    RankInfo,
    RankPairs,
    Trial,
    TrialRequest,
    Versions,
)
from ..messages import Progress, RunPairs, RunTrial, StepSample, WorkOrder
from ..supervisor import Worker, WorkerGone
from .causes import cause_of, port_was_taken, with_rank
from .links import END_S, Found, Link, LocalLink
from .meeting import free_port
from .merging import merged
from .messages import Spawn
from .ranks import Rank

if TYPE_CHECKING:
    from .group import RankGroup

GRACE_S = 3.0
"""After one rank failed the others have so long to say how they fared."""
MAX_PORTS = 3
"""Ports that are tried in turn where somebody else takes them first."""

T = TypeVar("T")


class GroupWorker:
    """The script on every rank: to the session it looks like one worker.

    Attributes:
        order, log, versions, files, pid: as of the worker on this rank.
        ranks, parallelism: what all ranks found, after `discover`.
    """

    def __init__(
        self,
        group: RankGroup,
        order: WorkOrder,
        *,
        log: Path,
        environment: dict[str, str],
        silence_s: float,
        setup_s: float,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self._group = group
        self._plain = order
        self.log = log
        self._environment = environment
        self._silence_s = silence_s
        self._setup_s = setup_s
        self._on_progress = on_progress
        self._busy: set[Future[Any]] = set()
        self._taken_files: list[FileTouched] = []
        self.ranks: tuple[RankInfo, ...] = ()
        self.parallelism: Parallelism | None = None
        self._ended = False
        self._start()

    @property
    def job(self) -> Rank:
        """The job, as rank 0 has it."""
        return self._group.rank

    @property
    def order(self) -> WorkOrder:
        """What this rank's worker was told."""
        return self._plain

    @property
    def pid(self) -> int:
        """Of the worker on this rank."""
        return self._local.worker.pid

    @property
    def versions(self) -> Versions | None:
        """Of the worker on this rank."""
        return self._local.worker.versions

    @property
    def files(self) -> list[FileTouched]:
        """What the script touched, on any rank."""
        return [*self._local.worker.files, *self._taken_files]

    def discover(self) -> tuple[Discovery, DeviceInfo]:
        """Waits until the training loop is found on every rank.

        Raises:
            WorkerGone: it was not; the rank that failed by itself is named.
        """
        for attempt in range(MAX_PORTS):
            try:
                found = self._all(lambda link: link.discover())
            except WorkerGone as gone:
                if port_was_taken(gone) and attempt < MAX_PORTS - 1 and not self._ended:
                    self._end_all()
                    self._start()
                    continue
                raise
            break
        self._note(found)
        first = found[0]
        return first.discovery, self._shared(first.device)

    def run(
        self,
        request: TrialRequest,
        ordinal: int,
        *,
        precision: float,
        time_limit_s: float,
        min_sample_s: float = 0.0,
    ) -> tuple[Trial, tuple[StepSample, ...]]:
        """Runs one size on every rank.

        Raises:
            WorkerGone: a rank is over, and so are all.
        """
        order = RunTrial(
            request=request,
            ordinal=ordinal,
            precision=precision,
            min_sample_s=min_sample_s,
            time_limit_s=time_limit_s,
        )
        parts = self._all(lambda link: link.run(order))
        return merged([trial for trial, _ in parts]), parts[0][1]

    def run_pairs(self, batch_size: int, time_limit_s: float) -> tuple[RankPairs, ...]:
        """Runs paired steps on every rank.

        Raises:
            WorkerGone: a rank is over, and so are all.
        """
        order = RunPairs(batch_size=batch_size, time_limit_s=time_limit_s)
        return tuple(self._all(lambda link: link.run_pairs(order)))

    def end(self) -> None:
        """Ends the script on every rank."""
        if not self._ended:
            self._ended = True
            self._end_all()

    # inside ----------------------------------------------------------------------------------

    def _start(self) -> None:
        group = self._group
        group.next_generation()
        address, port = group.master_address(), free_port()
        for remote in group.links():
            order = msgspec.structs.replace(self._plain, lockstep=group.lockstep(remote.rank))
            remote.spawn(
                Spawn(
                    order=order,
                    master_address=address,
                    master_port=port,
                    silence_s=self._silence_s,
                    setup_s=self._setup_s,
                    log=str(self.log.resolve()),
                )
            )
        worker = Worker(
            msgspec.structs.replace(self._plain, lockstep=group.lockstep(0)),
            log=self.log,
            environment=rank_environment(self._environment, group.rank, address, port),
            silence_s=self._silence_s,
            setup_s=self._setup_s,
            on_progress=self._on_progress,
        )
        self._local = LocalLink(0, worker)

    def _links(self) -> list[Link]:
        return [self._local, *self._group.links()]

    def _all(self, call: Callable[[Link], T]) -> list[T]:
        """Calls all ranks at once; the first that is over ends all, within a bounded time."""
        links = self._links()
        futures = [self._group.submit(lambda link=link: call(link)) for link in links]  # type: ignore[misc]
        self._busy = set(futures)
        waiting = wait(futures, return_when=FIRST_EXCEPTION).not_done
        if waiting:
            wait(waiting, timeout=GRACE_S)
            self._kill_all()
            wait(waiting, timeout=END_S)
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

    def _kill_all(self) -> None:
        for link in self._links():
            link.kill()

    def _end_all(self) -> None:
        self._kill_all()
        self._wait_for_busy()
        self._local.end()
        for link in self._group.links():
            self._taken_files += link.end()

    def _wait_for_busy(self) -> None:
        """Interrupted in the middle of a call: its threads come first."""
        if self._busy:
            wait(self._busy, timeout=END_S)
            self._busy = set()

    def _note(self, found: list[Found]) -> None:
        hosts = self._group.hosts()
        self.parallelism = found[0].parallelism
        self.ranks = tuple(
            RankInfo(
                rank=number,
                local_rank=hosts[number][1],
                host=hosts[number][0],
                device=one.discovery.parameter_device,
                device_name=one.device.name,
                capacity_bytes=self._shared(one.device).capacity_bytes,
            )
            for number, one in enumerate(found)
        )

    def _shared(self, device: DeviceInfo) -> DeviceInfo:
        """On a CPU the ranks of one host share its memory."""
        num = self._group.rank.local_world_size
        if device.kind != "cpu" or num == 1 or device.limit_bytes is not None:
            return device
        return msgspec.structs.replace(
            device,
            capacity_bytes=device.capacity_bytes // num,
            capacity_source=f"a rank's share, 1 of {num}, of: {device.capacity_source}",
        )


def rank_environment(
    base: Mapping[str, str], rank: Rank, master_address: str, master_port: int
) -> dict[str, str]:
    """A rank's variables: the launcher's, with a fresh port for the script's process group.

    Where the launcher does not set RANK and its like (mpirun, srun) they are added.
    """
    environment = dict(base)
    environment["MASTER_ADDR"] = master_address
    environment["MASTER_PORT"] = str(master_port)
    environment["RANK"] = str(rank.rank)
    environment["WORLD_SIZE"] = str(rank.world_size)
    environment["LOCAL_RANK"] = str(rank.local_rank)
    environment["LOCAL_WORLD_SIZE"] = str(rank.local_world_size)
    if "TORCHELASTIC_USE_AGENT_STORE" in environment:
        environment["TORCHELASTIC_USE_AGENT_STORE"] = "False"
    return environment
