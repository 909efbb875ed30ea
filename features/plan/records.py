"""One job over GPUs of several types and hosts: records put together into a plan and a forecast."""

from __future__ import annotations

from typing import Literal

from ...records.advice import Finding
from ...records.base import SCHEMA_VERSION, Record, Spread
from ...records.split import CapSource

PlanKind = Literal[
    "plan", "equal shares", "in proportion to speed", "all types", "one type", "one GPU"
]


class PlanCard(Record, frozen=True, kw_only=True):
    """One type of GPU, from one record.

    Attributes:
        name: in this plan: as `--count` calls it, else the device's short name.
        device: as the driver names it.
        record: the folder.
        count: how many there are; 0 where none was counted.
        recommended: samples a step of one GPU alone, by its record.
        samples_per_s, tokens_per_s: of one GPU alone at that size; tokens are real ones, without
            padding.
        epoch_s: seconds that one GPU alone takes for an epoch at that size.
        largest: the most samples that may be in one micro-batch; more are accumulated.
        price: for one GPU an hour, in the user's own currency.
        samples_per_price, tokens_per_price: for one unit of that currency, one GPU alone.
    """

    name: str
    device: str
    record: str
    count: int = 0
    recommended: int
    samples_per_s: Spread | None = None
    tokens_per_s: float | None = None
    epoch_s: float | None = None
    largest: int
    largest_ran: int
    largest_source: CapSource
    time_source: Literal["time law", "interpolated"]
    samples_per_joule: float | None = None
    tokens_per_joule: float | None = None
    price: float | None = None
    samples_per_price: float | None = None
    tokens_per_price: float | None = None
    unavailable: dict[str, str] = {}


class PlanShare(Record, frozen=True, kw_only=True):
    """The share of a step that each of some GPUs of one type takes.

    Attributes:
        first_rank: ranks from this one on, `num_gpus` of them.
        batch_size: samples a step of one GPU, over all its micro-batches.
        micro_batches: as equal as they can be.
        multiple_of: what each micro-batch is a multiple of.
        predicted_step_s: without synchronisation; an estimate.
        gradient_weight: of the mean over all samples of this rank; see `SplitShare`.
    """

    name: str
    first_rank: int
    num_gpus: int
    batch_size: int
    micro_batches: int
    predicted_step_s: float
    gradient_weight: float
    multiple_of: int = 1


class PlanOption(Record, frozen=True, kw_only=True):
    """One way to divide a step over the GPUs. All numbers are estimates.

    Attributes:
        compute_s: of the slowest GPU.
        sync_s: what synchronisation adds; `None` where nobody knows it, and `step_s` is without.
        efficiency: samples per second over what all GPUs of the plan would do together if each
            were alone at its own recommended size.
        samples_per_joule: while a GPU waits for others it is taken to draw as much as at work.
        samples_per_price: for one unit of the currency of `--price`; all GPUs of the option are
            paid for.
    """

    kind: PlanKind
    name: str
    num_gpus: int
    global_batch: int
    shares: tuple[PlanShare, ...] = ()
    compute_s: float | None = None
    sync_s: float | None = None
    step_s: float | None = None
    samples_per_s: float | None = None
    tokens_per_s: float | None = None
    epoch_s: float | None = None
    efficiency: float | None = None
    samples_per_joule: float | None = None
    tokens_per_joule: float | None = None
    samples_per_price: float | None = None
    tokens_per_price: float | None = None
    unavailable: dict[str, str] = {}


class Link(Record, frozen=True, kw_only=True):
    """Where the time of synchronisation comes from.

    Attributes:
        source: in words: the record that measured it, or the standard that gives the line rate.
        sync_s: Tsync as measured, exposed, on `measured_ranks` ranks.
        bytes_per_s, latency_s: of the slowest link, one way; of an estimate.
        gradient_bytes: that each rank sends, before the ring's factor.
        busy_factor: Tcomp inside DistributedDataParallel with all ranks at work over that of one
            process without it; 1 where it was not measured.
    """

    confidence: Literal["measured", "estimate"]
    source: str
    sync_s: Spread | None = None
    measured_ranks: int | None = None
    bytes_per_s: float | None = None
    latency_s: float = 0.0
    gradient_bytes: int | None = None
    busy_factor: float = 1.0
    unavailable: dict[str, str] = {}


class RankPoint(Record, frozen=True, kw_only=True):
    """The job on so many GPUs; an estimate unless `measured` says otherwise.

    Attributes:
        cards: types and how many of each.
        scaling: `weak`: the batch of a GPU stays; `strong`: the global batch stays.
        batch_sizes: of a GPU of each type, the largest where they differ.
        speedup: over one GPU of the fastest type of this point, in samples per second.
        efficiency: samples per second over what its GPUs do together, each alone at its own size.
    """

    num_gpus: int
    cards: tuple[str, ...]
    scaling: Literal["weak", "strong"]
    global_batch: int
    batch_sizes: tuple[int, ...] = ()
    compute_s: float | None = None
    sync_s: float | None = None
    step_s: float | None = None
    samples_per_s: float | None = None
    epoch_s: float | None = None
    speedup: float | None = None
    efficiency: float | None = None
    confidence: Literal["measured", "estimate"] = "estimate"
    unavailable: dict[str, str] = {}


class ClusterPlan(Record, frozen=True, kw_only=True, tag_field="kind", tag="cluster-plan"):
    """Records of one job from any hosts, put together.

    Attributes:
        options: the plan first; empty where no GPUs were counted.
        granularity: every size is a multiple of it.
        forecast: by number of GPUs; empty where no Tsync is known.
        left_out: records that the plan does not use, and why.
        findings: what differs between the records, and what follows from the plan.
        unavailable: what the predictions leave out.
    """

    schema_version: str = SCHEMA_VERSION
    script: str
    global_batch: int
    global_batch_source: str
    granularity: int = 1
    num_samples: int | None = None
    cards: tuple[PlanCard, ...]
    options: tuple[PlanOption, ...] = ()
    link: Link | None = None
    forecast: tuple[RankPoint, ...] = ()
    findings: tuple[Finding, ...] = ()
    left_out: dict[str, str] = {}
    unavailable: dict[str, str] = {}
