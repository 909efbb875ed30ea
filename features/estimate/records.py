"""The predictions of `estimate`: nothing of it ran on the GPU that it speaks of."""

from __future__ import annotations

from ...records import FakeTrial, PeakRole, TensorUse, Variant
from ...records.base import Count, Record

HARDLY_CHECKED = "an estimate; on a GPU only the memory of three trainings was checked"
"""Each figure for a GPU: others published the sizes that ranges were compared with."""


class SizeLimit(Record, frozen=True, kw_only=True):
    """A limit of kernels, at a batch for which there may be memory.

    Attributes:
        shape: with B for the batch size, `B x 16 x 3840`.
        line: of the script; empty where it is unknown.
        begins: the smallest batch beyond the limit: 2^31 elements, or 65,535 sequences.
        unreached: the smallest batch of which whole samples lie beyond 2^32 elements; `None` where
            that is no matter.
    """

    use: TensorUse
    shape: str
    line: str
    begins: Count
    unreached: Count | None = None


class WhatIf(Record, frozen=True, kw_only=True):
    """A change of the script, and the memory that it saves at its own batch size.

    Attributes:
        variant: what is changed.
        change: in words.
        batch_size: of each step on the device: the script's own, or that of a micro-batch.
        peak_bytes: the most that lives at once on a device then; `None` if unknown.
        saved_bytes: less than as written; below 0 it takes more.
        reason: why it is unknown.
    """

    variant: Variant
    change: str
    batch_size: Count
    peak_bytes: int | None = None
    saved_bytes: int | None = None
    reason: str = ""


class FittedGpu(Record, frozen=True, kw_only=True):
    """The largest batch that should fit on a GPU; an estimate.

    Attributes:
        name: as it was asked for.
        memory_bytes: of the GPU, as torch reports it.
        low: size whose segments fit, as torch's caching allocator asks for them, beside a large
            context; 0 if that of the first trial does not, or the script's evaluation may not;
            `None` where the requests cannot be predicted.
        high: size beyond which the tensors alone do not fit; 0 if that of the first trial does not,
            or the evaluation does not.
        is_bounded: a larger size was looked at; else more than `high` may fit.
    """

    name: str
    memory_bytes: int
    low: int | None
    high: int
    is_bounded: bool = True


class Forecast(Record, frozen=True, kw_only=True):
    """The steps of the script in one variant, and what follows from them.

    Attributes:
        trials: in the order of their sizes.
        floor_bytes: no size that was looked at takes less; 0 without a law.
        fixed_bytes, sample_bytes: the peak is fixed_bytes + sample_bytes x batch between the two
            largest sizes. The law is the larger of that and the floor.
        residual: largest relative miss of the line by a size above the floor, `None` with fewer
            than three such sizes.
        no_law: why sizes below the two largest do not follow the line; empty if they do.
        gpus: in the order that they were asked for.
    """

    variant: Variant
    trials: tuple[FakeTrial, ...]
    floor_bytes: float = 0.0
    fixed_bytes: float
    sample_bytes: float
    residual: float | None = None
    no_law: str = ""
    gpus: tuple[FittedGpu, ...]

    def trial_at(self, batch_size: int) -> FakeTrial:
        """The trial of this batch size, or of the next larger one that was looked at."""
        return next(trial for trial in self.trials if trial.batch_size >= batch_size)


class EvaluationPeak(Record, frozen=True, kw_only=True):
    """The peak of memory while the script evaluates between two epochs of training.

    Attributes:
        batch: that it is fed, in words; of the script's own size, whatever the training's is.
        too_large: GPUs whose memory it exceeds.
    """

    peak_bytes: int
    batch: str
    too_large: tuple[str, ...] = ()


class FittingChange(Record, frozen=True, kw_only=True):
    """A change of the script, and the GPUs on which its tensors would fit.

    Attributes:
        change: in words.
        batch_size: with which it was looked at.
        gpus: names.
    """

    change: str
    batch_size: Count
    gpus: tuple[str, ...]


class TooSmall(Record, frozen=True, kw_only=True):
    """GPUs on which the smallest batch of the script as it is written does not fit.

    Attributes:
        gpus: names.
        for_sure: no sample fits; else a batch smaller than the smallest was not looked at.
        batch_size: the smallest that was looked at.
        held_bytes: what is too much: of that batch, or of what does not depend on the batch.
        parts: of it by what they are for, the largest first.
        fixes: changes that would fit; those that fit on most of the GPUs first.
    """

    gpus: tuple[str, ...]
    for_sure: bool
    batch_size: Count
    held_bytes: int
    parts: dict[PeakRole, int]
    fixes: tuple[FittingChange, ...] = ()


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


class Estimate(Record, frozen=True, kw_only=True):
    """The answer of `estimate`.

    Attributes:
        label: what each figure for a GPU is.
        assumptions: what the ranges for GPUs take for granted.
        script, arguments: what was run.
        batch_size: the script's own.
        micro_batches: of an optimizer step.
        num_parameters: that are trained.
        num_samples: of an epoch, `None` if unknown; no batch is larger.
        forecasts: the script as it is written first; only variants that change something.
        blocks: that are checkpointed, `12 GPT2Block`; empty if the model repeats none.
        unavailable: variants that could not be looked at, each with the reason.
        what_ifs: other changes, each by itself.
        sharded: the script on each of several ranks that share its model, if that was asked for.
        lengths: the script with samples of other lengths, if that was asked for.
        bounds: of the step time, for each GPU at the script's own size and at the largest that
            fits, as written and under bf16.
        tensors: the least and the most bytes that the tensors of a real step as written should take
            at once, at the script's own batch size; `None` in old records.
        compiled: the script compiles its model; the steps run it as it is written.
        calibration: of them by a run on a real GPU, if one was given.
        too_small: GPUs on which not even the smallest batch fits, and why.
        evaluation: `None` where the script does not evaluate, or its peak is unknown.
        limits: of kernels, at sizes for which one of the GPUs has memory.
    """

    script: str
    arguments: tuple[str, ...]
    batch_size: Count
    micro_batches: Count
    num_parameters: int
    num_samples: int | None
    forecasts: tuple[Forecast, ...]
    blocks: str = ""
    unavailable: dict[str, str] = {}
    what_ifs: tuple[WhatIf, ...] = ()
    sharded: tuple[Forecast, ...] = ()
    lengths: tuple[Forecast, ...] = ()
    bounds: tuple[StepBound, ...] = ()
    calibration: Calibration | None = None
    tensors: tuple[int, int] | None = None
    compiled: bool = False
    too_small: tuple[TooSmall, ...] = ()
    evaluation: EvaluationPeak | None = None
    limits: tuple[SizeLimit, ...] = ()
    label: str = HARDLY_CHECKED
    assumptions: tuple[str, ...] = ()
