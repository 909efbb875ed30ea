"""Tsync by number of GPUs: from a record that measured it, or from what a link carries."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from ....advisor.measured.distribution import ring_share, scaling_of
from ....records import RunRecord
from ....records import Scaling as RankScaling
from ..records import Link
from .interconnects import Interconnect

FARTHEST_ESTIMATE = 64
"""On more GPUs no estimate of Tsync is given: switches, topology and stragglers decide."""
GRADIENT_BYTES = 4
"""Bytes of a parameter's gradient: DistributedDataParallel sends them in the parameters' own
precision, which is float32 unless the record says otherwise."""


def measured_link(name: str, record: RunRecord, batch_size: int | None) -> Link | None:
    """Tsync as a job of several ranks measured it; `None` where it made no paired steps."""
    scaling = scaling_of(record, batch_size)
    if scaling is None:
        return None
    unavailable = {}
    factor = _busy_factor(scaling)
    if factor is None:
        unavailable["busy_factor"] = scaling.unavailable.get("alone_s", "not measured")
    return Link(
        confidence="measured",
        source=f"paired steps of {scaling.world_size} ranks at batch {scaling.batch_size}, {name}",
        sync_s=scaling.sync_s,
        measured_ranks=scaling.world_size,
        busy_factor=factor or 1.0,
        unavailable=unavailable,
    )


def estimated_link(link: Interconnect, text: str, num_parameters: int | None, width: int) -> Link:
    """Tsync from a link's bandwidth.

    Args:
        text: as typed.
        width: bytes of a gradient's number.
    """
    unavailable = {"busy_factor": "no job of several ranks was measured"}
    if num_parameters is None:
        unavailable["sync_s"] = "the number of parameters is not known"
    return Link(
        confidence="estimate",
        source=text if link.source == "as given" else f"{text} ({link.source})",
        bytes_per_s=link.bytes_per_s,
        latency_s=link.latency_s,
        gradient_bytes=None if num_parameters is None else width * num_parameters,
        unavailable=unavailable,
    )


def sync_at(link: Link | None, num_gpus: int) -> tuple[float | None, str]:
    """Seconds that synchronisation adds to a step on so many GPUs, and why they are not known.

    An estimate takes a ring all-reduce: 2 (R - 1) / R of the gradients' bytes over the slowest
    link, and 2 (R - 1) messages one after the other (Patarasuk and Yuan 2009, JPDC 69). It hides
    nothing behind the backward pass, and no link carries its full rate: the two errors have
    opposite signs.
    """
    if num_gpus == 1:
        return 0.0, ""
    if link is None:
        return None, "no Tsync: give a record of several ranks, or --interconnect"
    if link.sync_s is not None and link.measured_ranks is not None:
        ring = ring_share(num_gpus) / ring_share(link.measured_ranks)
        return max(0.0, link.sync_s.median) * ring, ""
    if link.gradient_bytes is None or link.bytes_per_s is None:
        return None, link.unavailable.get("sync_s", "not known")
    if num_gpus > FARTHEST_ESTIMATE:
        reason = f"on more than {FARTHEST_ESTIMATE} GPUs only a measured Tsync is taken further"
        return None, reason
    wire = 2 * ring_share(num_gpus) * link.gradient_bytes / link.bytes_per_s
    return wire + 2 * (num_gpus - 1) * link.latency_s, ""


@dataclass(frozen=True, slots=True)
class Job:
    """What is the same for a job on any GPUs.

    Attributes:
        link: where the time of synchronisation comes from.
        num_samples: of an epoch.
        least: every size is a multiple of it.
    """

    link: Link | None
    num_samples: int | None = None
    least: int = 1

    @property
    def measured_ranks(self) -> int | None:
        """Ranks on which synchronisation was measured."""
        return None if self.link is None else self.link.measured_ranks

    def sync_at(self, num_gpus: int) -> tuple[float | None, str]:
        """Seconds that synchronisation adds to a step, and why they are not known."""
        return sync_at(self.link, num_gpus)

    def factor_on(self, num_gpus: int) -> float:
        """Factor on the step of one process for each of so many ranks."""
        return self.link.busy_factor if self.link is not None and num_gpus > 1 else 1.0

    def epoch_s(self, global_batch: int, step_s: float) -> float | None:
        """Seconds of an epoch; `None` where it has no whole step, or its length is not known."""
        if self.num_samples is None or global_batch > self.num_samples:
            return None
        return ceil(self.num_samples / global_batch) * step_s


def _busy_factor(scaling: RankScaling) -> float | None:
    if scaling.alone_s is None or scaling.alone_s.median <= 0:
        return None
    return scaling.compute_s.median / scaling.alone_s.median
