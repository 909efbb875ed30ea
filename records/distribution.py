"""Several ranks or devices: who they are, what each measured, what communication costs."""

from __future__ import annotations

from typing import Literal

from .base import Count, Record, Spread
from .checks import Outcome


class RankInfo(Record, frozen=True, kw_only=True):
    """One rank of the job.

    Attributes:
        device: as torch names it, with the index that the rank sees.
    """

    rank: int
    local_rank: int
    host: str
    device: str
    device_name: str
    capacity_bytes: int


class Parallelism(Record, frozen=True, kw_only=True):
    """The shapes of parallelism that were seen in one process, by name.

    Attributes:
        shapes: `DistributedDataParallel`, `DataParallel`, `FSDP`, `FSDP2`, `spread model`.
        world_size: ranks of the script's default process group, `None` without one.
        backend: of that group.
        devices: where parameters live, each with their bytes.
        replicas: devices that `DataParallel` scatters each batch to.
        comm_hook: whether a communication hook is installed (gradients are not sent as they are).
        not_measured: what stays unknown for a shape, one sentence each.
    """

    shapes: tuple[str, ...] = ()
    world_size: int | None = None
    backend: str | None = None
    devices: dict[str, int] = {}
    replicas: tuple[str, ...] = ()
    comm_hook: bool = False
    not_measured: tuple[str, ...] = ()

    @property
    def scatters(self) -> bool:
        """Whether each batch is cut over several devices of the process."""
        return "DataParallel" in self.shapes and len(self.replicas) > 1


class RankPairs(Record, frozen=True, kw_only=True):
    """One rank's paired steps: with and without gradient synchronisation, in turn.

    Attributes:
        compute_s: seconds of the steps under `no_sync`, in order.
        step_s: seconds of the ordinary steps, each right after the one of `compute_s`.
        exposed_s: communication that no backward computation covered, per ordinary step, from
            DDP's own clock; empty where it keeps none.
        alone_s: seconds of steps under `no_sync` while the other ranks of the job waited, without
            DistributedDataParallel's own forward where it can be left out; in turn with the others.
    """

    rank: int
    compute_s: tuple[float, ...]
    step_s: tuple[float, ...]
    exposed_s: tuple[float, ...] = ()
    alone_s: tuple[float, ...] = ()
    outcome: Outcome = "ok"
    detail: str = ""
    unavailable: dict[str, str] = {}


class Communication(Record, frozen=True, kw_only=True):
    """The paired steps of all ranks at one batch size.

    Attributes:
        batch_size: samples per rank and micro-batch.
        micro_batches: batches per optimizer step.
    """

    batch_size: Count
    micro_batches: Count
    ranks: tuple[RankPairs, ...] = ()
    unavailable: dict[str, str] = {}

    def __post_init__(self) -> None:
        if len({one.rank for one in self.ranks}) != len(self.ranks):
            msg = "a rank stands twice among those that made paired steps"
            raise ValueError(msg)


class Distribution(Record, frozen=True, kw_only=True):
    """A job of several ranks.

    Attributes:
        launcher: who started the ranks: `torchrun`, `mpirun`, `srun`, the script itself; `none`
            for parallelism inside a single process.
        communication: paired steps, one entry a batch size.
    """

    world_size: int
    launcher: str
    ranks: tuple[RankInfo, ...] = ()
    parallelism: Parallelism | None = None
    communication: tuple[Communication, ...] = ()
    unavailable: dict[str, str] = {}


class ScalingPoint(Record, frozen=True, kw_only=True):
    """The epoch on so many devices by the law; `measured` where the ranks were that many, so that
    its steps were measured: the epoch is computed from them all the same.

    Attributes:
        epoch_s: seconds of the training steps of one epoch.
        speedup: one device's epoch over theirs, in whole steps where its length is known; else
            samples per second over one device's.
    """

    world_size: int
    epoch_s: Spread | None
    speedup: Spread
    confidence: Literal["measured", "estimate"] = "estimate"


class Scaling(Record, frozen=True, kw_only=True):
    """Costs and gains of distributing the training, at one batch size a rank.

    Attributes:
        world_size: ranks that measured it.
        compute_s: Tcomp, seconds a step without synchronisation, on the slowest rank, while all
            ranks compute.
        alone_s: Tcomp of one process, while the other ranks wait; of the median rank.
        step_s: seconds an ordinary step, in the mean of the ranks.
        sync_s: Tsync, what synchronisation adds to a step, from paired steps.
        wire_s: the part that the transfer itself takes, the least over the ranks by DDP's clock.
        waits_s: what each rank waited for slower ones a step, in order.
        straggler: the rank that the others wait for.
        break_even_batch: from this size on distribution pays, by a law; 1 if it always does.
        break_even_low, break_even_high: the size at either end of Tsync's interval.
    """

    batch_size: int
    world_size: int
    compute_s: Spread
    step_s: Spread
    sync_s: Spread
    alone_s: Spread | None = None
    wire_s: Spread | None = None
    waits_s: tuple[float, ...] = ()
    straggler: int | None = None
    verdict: Literal["pays", "does not pay", "cannot tell"]
    message: str
    break_even_batch: int | None = None
    break_even_low: int | None = None
    break_even_high: int | None = None
    points: tuple[ScalingPoint, ...] = ()
    unavailable: dict[str, str] = {}
