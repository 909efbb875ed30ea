"""A script that a launcher started on several ranks: rank 0 runs the session, the others follow."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

from ...errors import UsageError
from ...probes.distributed.rank_group import RankGroup
from ...probes.distributed.ranks import Rank, detect_rank
from ...probes.worker.run_script import die_with_parent
from ..setup.target import Target, choose_target


def own_rank() -> Rank | None:
    """This process in the job that a launcher started, `None` for an ordinary process."""
    return detect_rank(os.environ)


def follow(rank: Rank) -> None:
    """Serves rank 0 until all is measured.

    Raises:
        RunError: there is no rank 0.
    """
    from ...probes.distributed.follower import follow

    die_with_parent(signal.SIGTERM)  # a launcher that is killed cannot end its ranks
    follow(rank, os.environ)


@contextlib.contextmanager
def lead(rank: Rank | None) -> Iterator[RankGroup | None]:
    """The group of all ranks; `None` for an ordinary process. All leave together at the end."""
    if rank is None:
        yield None
        return
    die_with_parent(signal.SIGTERM)  # a launcher that is killed cannot end its ranks
    group = RankGroup(rank, os.environ)
    try:
        yield group
    finally:
        group.close()


def rank_target(device: str, memory_limit_bytes: int | None, rank: Rank) -> Target:
    """The device of a job of several ranks: each takes its own GPU, as the script says.

    Raises:
        UsageError: one device was named for all ranks.
    """
    which = device.partition(":")[2]
    if which:
        msg = f"--device {device}: {rank.world_size} ranks choose their devices themselves."
        raise UsageError(msg, "Leave the number out; CUDA_VISIBLE_DEVICES says which they see.")
    target = choose_target(device, memory_limit_bytes)
    limit = target.data_limit_bytes
    if limit is not None and memory_limit_bytes is None:
        limit //= rank.local_world_size
    # Every rank takes one of those that the user allows, in the order that he gave them.
    return Target(device=target.device, data_limit_bytes=limit)
