"""One global batch over devices of unlike speed: a plan, and what else could be done."""

from __future__ import annotations

from typing import Literal

from .base import Record, Spread

CapSource = Literal["ran", "memory law", "twin"]
SplitKind = Literal["plan", "equal shares", "in proportion to speed", "fastest only"]


class SplitShare(Record, frozen=True, kw_only=True):
    """The share of each step that one device takes; rank i is the i-th share of a plan.

    Attributes:
        batch_size: the per-rank batch size.
        predicted_step_s: without synchronisation; an estimate.
        step_s: measured, where exactly this size ran on this device.
        time_source: `interpolated` between measured sizes where no law of step times holds.
        twin_of: the device whose times and limit stand for this one's.
        speed_ratio: to that twin; 1 where the two are equal.
        largest: the most that this device may get.
        largest_ran: the largest size that ran on it, or on its twin.
        largest_source: `ran`: that size ran here; `twin`: it is the twin's; `memory law`: a
            larger one that the law of peak memory says fits, which never ran.
        gradient_weight: batch_size x ranks / global batch: DistributedDataParallel divides the sum
            of the gradients by the number of ranks, so that a rank's mean loss is multiplied by
            this.
    """

    device: str
    batch_size: int
    predicted_step_s: float
    step_s: Spread | None = None
    time_source: Literal["time law", "interpolated"]
    twin_of: str | None = None
    speed_ratio: float = 1.0
    largest: int
    largest_ran: int
    largest_source: CapSource
    gradient_weight: float


class SplitOption(Record, frozen=True, kw_only=True):
    """One way to divide a step. All times are estimates without synchronisation.

    Attributes:
        global_batch: of all devices together; below the plan's where `fastest only` holds less.
        step_times_s: of each device; the slowest sets the pace: `step_s`.
        unavailable: why there is no time.
    """

    kind: SplitKind
    devices: tuple[str, ...]
    batch_sizes: tuple[int, ...] = ()
    global_batch: int
    step_times_s: tuple[float, ...] = ()
    step_s: float | None = None
    samples_per_s: float | None = None
    unavailable: dict[str, str] = {}


class SplitPlan(Record, frozen=True, kw_only=True):
    """The division of a global batch whose slowest device is as fast as it can be.

    Attributes:
        granularity: every size is a multiple of it.
        spread_pct: of the predicted step times: largest less smallest, over the largest.
        num_samples: of the data set, where known.
        options: the plan first, then what else could be done, on the same predictions.
        remarks: what follows from the options.
        left_out: devices that the plan cannot hold, and why.
        unavailable: what the predictions leave out.
    """

    global_batch: int
    global_batch_source: str
    granularity: int
    shares: tuple[SplitShare, ...]
    predicted_step_s: float
    predicted_samples_per_s: float
    spread_pct: float
    num_samples: int | None = None
    options: tuple[SplitOption, ...]
    remarks: tuple[str, ...] = ()
    left_out: dict[str, str] = {}
    unavailable: dict[str, str] = {}
