"""The script on ranks that a launcher started, each with a supervisor of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from ...errors import RunError
from ...records import FileTouched, Versions
from ..process.messages import Progress
from ..process.orders import WorkOrder
from ..process.supervisor import Worker
from .messages import Spawn
from .rank_channels import Link, LocalLink
from .rank_group import RankGroup
from .ranked_worker import RankedWorker
from .ranks import Rank
from .rendezvous import free_port


class GroupWorker(RankedWorker):
    """Starts the script on every rank of a group.

    Args:
        group: the ranks.
        order: what each rank's worker is told.
        log, environment, silence_s, setup_s, on_progress: as of the worker on this rank.

    Raises:
        RunError: a rank's supervisor is gone.
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
        if group.lost:
            raise RunError(
                f"rank {group.lost[0]} is gone: its batchadvisor process ended.",
                "Look at the launcher's output; what was measured is kept.",
            )
        super().__init__(group.rank, order, log, group.pool)
        self._group = group
        self._environment = environment
        self._silence_s = silence_s
        self._setup_s = setup_s
        self._on_progress = on_progress
        self._taken_files: list[FileTouched] = []
        self._start()

    @property
    def pid(self) -> int:
        """Process id of the worker on this rank."""
        return self._local.worker.pid

    @property
    def versions(self) -> Versions | None:
        """Versions that the worker on this rank told."""
        return self._local.worker.versions

    @property
    def files(self) -> list[FileTouched]:
        """Files that the script touched, on any rank."""
        return [*self._local.worker.files, *self._taken_files]

    def _start(self) -> None:
        group = self._group
        group.next_generation()
        address, port = group.master_address(), free_port()
        for remote in group.links():
            order = msgspec.structs.replace(self.order, lockstep=group.lockstep(remote.rank))
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
            msgspec.structs.replace(self.order, lockstep=group.lockstep(0)),
            log=self.log,
            environment=rank_environment(self._environment, group.rank, address, port),
            silence_s=self._silence_s,
            setup_s=self._setup_s,
            on_progress=self._on_progress,
        )
        self._local = LocalLink(0, worker)

    def _start_again(self) -> bool:
        self._end_all()
        self._start()
        return True

    def _links(self) -> list[Link]:
        return [self._local, *self._group.links()]

    def _hosts(self) -> dict[int, tuple[str, int]]:
        return self._group.hosts()

    def _kill_all(self) -> None:
        for link in self._links():
            link.kill()

    def _end_all(self) -> None:
        self._kill_all()
        self._wait_for_busy()
        self._local.end()
        for link in self._group.links():
            self._taken_files += link.end()


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
