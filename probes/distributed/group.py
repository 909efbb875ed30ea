"""The leading rank: meets the others, starts the script on all of them, runs trials in lock-step.

supervisor of rank 0 ── Referee ◄── one byte a step ── script of rank 0
     │      ▲                  ◄────────────────────── script of rank 1
 Spawn,     │ FoundThere, ResultThere, Gone                 ▲
 RunTrial   ▼                                               │ pipes
     └── supervisor of rank 1 (follower.py) ────────────────┘
"""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...errors import RunError, UsageError
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
from ..messages import Lockstep, Progress, RunPairs, RunTrial, StepSample, WorkOrder
from ..supervisor import Worker, WorkerGone
from .causes import cause_of, port_was_taken, with_rank
from .links import END_S, Found, Link, LocalLink, RemoteLink
from .meeting import MEETING_S, free_port, host_for, new_token, publish
from .merging import merged
from .messages import Join, Spawn, channel_over
from .ranks import Rank
from .referee import Referee

GRACE_S = 3.0
"""After one rank failed the others have so long to say how they fared."""
MAX_PORTS = 3
"""Ports that are tried in turn where somebody else takes them first."""

T = TypeVar("T")


class RankGroup:
    """All ranks of one job, as rank 0 sees them.

    Args:
        rank: of this process, 0.
        environment: the variables that the launcher set.
        meeting_s: longest wait for the other ranks.

    Raises:
        RunError: not all ranks came.
        UsageError: they do not belong to the same job.
    """

    def __init__(
        self, rank: Rank, environment: Mapping[str, str], *, meeting_s: float = MEETING_S
    ) -> None:
        self.rank = rank
        self._environment = environment
        self._generation = -1
        self.referee = Referee(host_for(rank, environment), new_token(), rank.world_size)
        self._remote: dict[int, RemoteLink] = {}
        try:
            with publish(rank, self.referee.address, environment):
                self._meet(time.monotonic() + meeting_s, meeting_s)
        except BaseException:
            self.close()
            raise
        self._pool = ThreadPoolExecutor(rank.world_size, thread_name_prefix="rank")

    @property
    def lost(self) -> list[int]:
        """Ranks whose supervisor is gone."""
        return [one.rank for one in self._remote.values() if one.lost]

    def hosts(self) -> dict[int, tuple[str, int]]:
        """Host name and local rank of each rank."""
        here = {0: (os.uname().nodename, self.rank.local_rank)}
        return here | {
            number: (one.join.host, one.join.local_rank) for number, one in self._remote.items()
        }

    def start(
        self,
        order: WorkOrder,
        *,
        log: Path,
        environment: dict[str, str],
        silence_s: float,
        setup_s: float,
        on_progress: Callable[[Progress], None],
    ) -> GroupWorker:
        """Starts the script on every rank.

        Raises:
            RunError: a rank's supervisor is gone.
        """
        if self.lost:
            raise RunError(
                f"rank {self.lost[0]} is gone: its batchadvisor process ended.",
                "Look at the launcher's output; what was measured is kept.",
            )
        return GroupWorker(
            self,
            order,
            log=log,
            environment=environment,
            silence_s=silence_s,
            setup_s=setup_s,
            on_progress=on_progress,
        )

    def links(self) -> list[RemoteLink]:
        """The other ranks, in order."""
        return [self._remote[number] for number in sorted(self._remote)]

    def next_generation(self) -> int:
        """A number for the children that start now."""
        self._generation += 1
        return self._generation

    def lockstep(self, rank: int) -> Lockstep | None:
        """How a child of the present generation finds the referee; `None` for a single rank."""
        if self.rank.world_size == 1:
            return None
        address = self.referee.address
        return Lockstep(
            rank=rank,
            world_size=self.rank.world_size,
            host=address.host,
            port=address.port,
            token=address.token,
            generation=self._generation,
        )

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Runs a call beside others; one at a time a rank."""
        return self._pool.submit(call)

    def close(self) -> None:
        """Lets the other supervisors go; all ranks meet here before any leaves."""
        for one in self.links():
            one.say_goodbye()
        self.referee.close()
        if hasattr(self, "_pool"):
            self._pool.shutdown(wait=False, cancel_futures=True)

    def master_address(self) -> str:
        """Where the script's own process group meets."""
        return self._environment.get("MASTER_ADDR") or self.referee.address.host

    # inside ----------------------------------------------------------------------------------

    def _meet(self, end_s: float, meeting_s: float) -> None:
        world = self.rank.world_size
        while len(self._remote) < world - 1:
            try:
                join, connection = self.referee.supervisors.get(
                    timeout=max(0.0, end_s - time.monotonic())
                )
            except queue.Empty:
                missing = sorted(set(range(1, world)) - self._remote.keys())
                names = ", ".join(map(str, missing))
                raise RunError(
                    f"of {world} ranks {len(self._remote) + 1} came within {meeting_s:.0f} s; "
                    f"missing: {names}.",
                    "Start batchadvisor in every rank, with the same command.",
                ) from None
            try:
                self._check(join)
            except UsageError:
                connection.close()
                raise
            self._remote[join.rank] = RemoteLink(join, channel_over(connection))

    def _check(self, join: Join) -> None:
        world = self.rank.world_size
        if join.world_size != world:
            raise UsageError(
                f"rank {join.rank} counts {join.world_size} ranks, rank 0 counts {world}.",
                "Give all ranks the same world size.",
            )
        if join.rank in self._remote or not 0 < join.rank < world:
            raise UsageError(
                f"two processes say that they are rank {join.rank}.",
                "Give each its own rank.",
            )


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
