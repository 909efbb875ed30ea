"""The predictions of `estimate`: nothing of it ran on the GPU that it speaks of."""

from __future__ import annotations

from typing import Literal

from .base import Count, Record
from .roofline import Calibration, StepBound

HARDLY_CHECKED = "an estimate; on a GPU only the memory of three trainings was checked"
"""Each figure for a GPU: others published the sizes that ranges were compared with."""

PeakRole = Literal[
    "parameters",
    "gradients",
    "optimizer's state",
    "batch",
    "activations",
    "loss and logits",
    "backward",
    "optimizer's temporaries",
    "kept from before",
]
"""Use of memory; loss and logits: what torch's loss functions get and make; kept from before: it
lived as the step began, and is none of the others."""


class PeakPlace(Record, frozen=True, kw_only=True):
    """Tensors that live at the peak and were made in the same place.

    Attributes:
        module: classes of the modules that made them, `Block > Linear`; empty outside of modules.
        line: of the script, `folder/train.py:41`; empty where it is unknown.
        num_bytes, num_tensors: together.
    """

    role: PeakRole
    module: str
    line: str
    num_bytes: int
    num_tensors: Count


class PeakSource(Record, frozen=True, kw_only=True):
    """Memory at the peak that belongs to one module, or to one line of the script.

    Attributes:
        name: classes of modules, `Block > Linear`, or a line, `folder/train.py:41`; empty for all
            that belongs to none.
        roles: bytes by what they are for, the most first.
        num_tensors: together.
    """

    name: str
    roles: dict[PeakRole, int]
    num_tensors: Count

    @property
    def num_bytes(self) -> int:
        """Total bytes."""
        return sum(self.roles.values())


class StepTimeline(Record, frozen=True, kw_only=True):
    """Memory in use over the course of a step.

    Attributes:
        positions: how many tensors had begun or ceased to live since the step began, ascending.
        live: bytes by what they are for, one value for each position.
        phases: of the step, and the position at which each begins.
        num_events: tensors that began or ceased to live in the step; where that is more than there
            are positions, each stands for the one of its neighbours at which most lived.
    """

    positions: tuple[int, ...]
    live: dict[PeakRole, tuple[int, ...]]
    phases: tuple[tuple[str, int], ...] = ()
    num_events: int


TensorUse = Literal[
    "attention",
    "convolution",
    "interpolation",
    "Fourier transform",
    "pooling",
    "loss",
    "other",
]
"""The operation that works on a tensor; other: none of these made it."""


class LargeTensor(Record, frozen=True, kw_only=True):
    """The largest tensor of a step that an operation of one use works on.

    Attributes:
        shape: of an attention, that of its query.
        line: of the script; empty where it is unknown.
    """

    use: TensorUse
    shape: tuple[int, ...]
    line: str = ""


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


class FakeTrial(Record, frozen=True, kw_only=True):
    """A step of the script on tensors without contents.

    Attributes:
        batch_size: samples of a batch.
        peak_bytes: the most that lived at once.
        outside_bytes: the most that lived outside the optimizer's step; 0 if not known.
        parameter_bytes, gradient_bytes, optimizer_bytes, input_bytes: of what is trained, its
            gradients, the optimizers' state, the batches of the step.
        at_peak: bytes that lived at the peak by what they are for, the most first.
        places: that made most of what lived at the peak and is in no role of its own.
        modules, lines: that most of it belongs to, the largest first, with all that belongs to
            none last; parameters, their gradients and the optimizer's state of them belong to the
            module that holds them. What lived as the step began belongs to no line.
        timeline: of the step.
        largest: tensors of the step, one for each use.
    """

    batch_size: Count
    peak_bytes: int
    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    input_bytes: int
    at_peak: dict[PeakRole, int] = {}
    places: tuple[PeakPlace, ...] = ()
    modules: tuple[PeakSource, ...] = ()
    lines: tuple[PeakSource, ...] = ()
    timeline: StepTimeline | None = None
    outside_bytes: int = 0
    largest: tuple[LargeTensor, ...] = ()

    @property
    def working_bytes(self) -> int:
        """The peak of the passes over the batch, if known; else of the whole step."""
        return self.outside_bytes or self.peak_bytes


OptimizerKind = Literal[
    "",
    "AdamW",
    "AdamW, fused",
    "AdamW, one by one",
    "AdamW, 8-bit state",
    "Adafactor",
    "SGD with momentum",
    "SGD",
]
"""An optimizer in place of the script's own; none: its own."""


class Variant(Record, frozen=True, kw_only=True):
    """A change of the script's steps; without any they run as written.

    Attributes:
        bf16: they run under autocast to bfloat16.
        checkpointed: each repeated block keeps only its inputs for the backward pass.
        optimizer: that updates the parameters.
        accumulates: gradients of the batches before are there from the start, as in the later
            micro-batches of a step.
        lora_rank: of small layers beside linear ones, which alone are trained; 0: there are none.
        lora: names of the linear layers; empty: those of the repeated blocks.
        ranks: that share parameters, gradients and the optimizer's state (FSDP2); the batch is
            that of each of them.
        length: of the samples; 0: the script's own.
    """

    bf16: bool = False
    checkpointed: bool = False
    optimizer: OptimizerKind = ""
    accumulates: bool = False
    lora_rank: int = 0
    lora: tuple[str, ...] = ()
    ranks: Count = 1
    length: int = 0

    @property
    def name(self) -> str:
        """Short."""
        if self.bf16 and self.checkpointed:
            parts = ["both"]
        else:
            parts = ["bf16"] * self.bf16 + ["checkpointed"] * self.checkpointed
        if self.optimizer:
            parts.append(self.optimizer)
        if self.accumulates:
            parts.append("accumulated gradients")
        if self.lora_rank:
            parts.append(f"LoRA of rank {self.lora_rank}")
        if self.ranks > 1:
            parts.append(f"{self.ranks} ranks")
        if self.length:
            parts.append(f"length {self.length}")
        return ", ".join(parts) or "as written"


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
            context; 0 if that of the first trial does not, `None` where the requests cannot be
            predicted.
        high: size beyond which the tensors alone do not fit; 0 if that of the first trial does not.
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
