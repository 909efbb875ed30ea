"""How long a step takes at least on a GPU that is not there."""

from __future__ import annotations

from typing import NamedTuple

from .base import Count, Record


class OpWork(NamedTuple):
    """The work of one operation of a step.

    Attributes:
        dtype: that it multiplies; empty if it multiplies no matrices.
        flops: a multiplication and an addition are two.
        num_bytes: of what it reads and writes.
    """

    dtype: str
    flops: int
    num_bytes: int


class StepBound(Record, frozen=True, kw_only=True):
    """A time that an optimizer step of a size cannot beat, run operation by operation.

    Attributes:
        gpu: see `FittedGpu.name`.
        variant: name of it.
        batch_size: of a batch.
        seconds: the larger of both; `None` where it is unknown.
        roofline_s: sum over the operations of what their multiplications, or their bytes, take.
        launch_s: of its kernels, as far as one is assumed for each operation that moves bytes.
        num_kernels: that are assumed.
        reason: why it is unknown.
    """

    gpu: str
    variant: str
    batch_size: Count
    seconds: float | None = None
    roofline_s: float | None = None
    launch_s: float | None = None
    num_kernels: int = 0
    reason: str = ""


class Calibration(Record, frozen=True, kw_only=True):
    """A run on a real GPU beside the bounds of its steps.

    Attributes:
        device: of the run.
        factors: measured step time over the bound, by batch size.
        factor: their median.
        knees: by GPU, the smallest size with `KNEE_SHARE` of the best throughput; an estimate.
        reason: why there are none.
    """

    device: str
    factors: dict[int, float]
    factor: float
    knees: dict[str, int] = {}
    reason: str = ""
