"""The leading rank: meets the others, starts the script on all of them, runs trials in lock-step.

supervisor of rank 0 ── RankCoordinator ◄── one byte a step ── script of rank 0
     │      ▲                  ◄────────────────────── script of rank 1
 Spawn,     │ Found, Result, Gone                           ▲
 RunTrial   ▼                                               │ pipes
     └── supervisor of rank 1 (follower.py) ────────────────┘
"""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from ...errors import RunError, UsageError
from ..process.orders import Lockstep
from .messages import Join, channel_over
from .rank_channels import RemoteLink
from .rank_coordinator import RankCoordinator
from .ranks import Rank
from .rendezvous import MEETING_S, host_for, new_token, publish


class RankGroup:
    """All ranks of one job, as rank 0 sees them.

    Args:
        rank: of this process, 0.
        environment: the variables that the launcher set.
        meeting_s: longest wait for the other ranks.

    Attributes:
        pool: a thread for each rank.

    Raises:
        RunError: not all ranks came.
        UsageError: they do not belong to the same job.
    """

    def __init__(
        self, rank: Rank, environment: Mapping[str, str], *, meeting_s: float = MEETING_S
    ) -> None:
        self.rank = rank
        self.pool = ThreadPoolExecutor(rank.world_size, thread_name_prefix="rank")
        self._environment = environment
        self._generation = -1
        self.coordinator = RankCoordinator(
            host_for(rank, environment), new_token(), rank.world_size
        )
        self._remote: dict[int, RemoteLink] = {}
        try:
            with publish(rank, self.coordinator.address, environment):
                self._meet(time.monotonic() + meeting_s, meeting_s)
        except BaseException:
            self.close()
            raise

    @property
    def lost(self) -> list[int]:
        """Ranks whose supervisor is gone."""
        return [link.rank for link in self._remote.values() if link.lost]

    def hosts(self) -> dict[int, tuple[str, int]]:
        """Host name and local rank of each rank."""
        here = {0: (os.uname().nodename, self.rank.local_rank)}
        return here | {
            number: (link.join.host, link.join.local_rank) for number, link in self._remote.items()
        }

    def links(self) -> list[RemoteLink]:
        """The other ranks, in order."""
        return [self._remote[number] for number in sorted(self._remote)]

    def next_generation(self) -> int:
        """A number for the children that start now."""
        self._generation += 1
        return self._generation

    def lockstep(self, rank: int) -> Lockstep | None:
        """How a child of the present generation finds the coordinator; `None` for a single rank."""
        if self.rank.world_size == 1:
            return None
        address = self.coordinator.address
        return Lockstep(
            rank=rank,
            world_size=self.rank.world_size,
            host=address.host,
            port=address.port,
            token=address.token,
            generation=self._generation,
        )

    def close(self) -> None:
        """Lets the other supervisors go; all ranks meet here before any leaves."""
        for link in self.links():
            link.say_goodbye()
        self.coordinator.close()
        self.pool.shutdown(wait=False, cancel_futures=True)

    def master_address(self) -> str:
        """Where the script's own process group meets."""
        return self._environment.get("MASTER_ADDR") or self.coordinator.address.host

    # inside ----------------------------------------------------------------------------------

    def _meet(self, end_s: float, meeting_s: float) -> None:
        world = self.rank.world_size
        while len(self._remote) < world - 1:
            try:
                join, connection = self.coordinator.supervisors.get(
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
