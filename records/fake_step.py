"""Steps on fake tensors: what lives at their peak, what they do, and how they were changed."""

from __future__ import annotations

from typing import Literal, NamedTuple

from .base import Count, Record

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
PriorKind = Literal["tensors", "segments"]
"""The count behind the law: live tensors, or what torch's CUDA allocator would reserve for them."""


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

    def __post_init__(self) -> None:
        if not self.positions:
            msg = "the memory over a step has no position"
            raise ValueError(msg)
        if any(len(values) != len(self.positions) for values in self.live.values()):
            msg = f"the memory over a step of {len(self.positions)} positions has another number"
            raise ValueError(msg)


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


class LivedBefore(NamedTuple):
    """Memory that lived before a step, and what is known of the step's requests beside their bytes.

    Attributes:
        num: so many of the step's requests, the first, are of it.
        late: numbers of those of them, counted from 1, that a training's first step makes:
            gradients and the optimizer's state.
        products: before which of its requests, counted from 0, cuBLAS begins its work: in the
            forward pass, and in the thread of the backward pass.
        passing: before which of its requests an operation takes memory only while it runs, and how
            many bytes; an assumption that is no part of the step's own tensors.
        emptied: before which of its requests the cache is emptied, in a training's first step:
            cuDNN has tried all kernels of a convolution.
    """

    num: int = 0
    late: tuple[int, ...] = ()
    products: tuple[int, ...] = ()
    passing: tuple[tuple[int, int], ...] = ()
    emptied: tuple[int, ...] = ()

    def scaled(self, share: float) -> LivedBefore:
        """Returns the same for another batch size, with `passing` grown by `share`."""
        passing = tuple((at, max(1, round(size * share))) for at, size in self.passing)
        return self._replace(passing=passing)


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


class MemoryPrior(Record, frozen=True, kw_only=True):
    """Peaks of steps that computed nothing; an estimate, which the first real peaks correct.

    Attributes:
        peaks: bytes by batch size.
        passes: the most outside of the optimizer's step, by batch size; empty in old records, and
            where that was not counted.
        floor_bytes: parameters, gradients and the optimizer's state: no step takes less.
        kind: what was counted; `segments`, what an allocator reserves, only in old records.
        elapsed_s: wall time of these steps and of the process that made them.
        reason: why there are none; the search then goes by real peaks alone.
    """

    peaks: dict[int, int] = {}
    passes: dict[int, int] = {}
    floor_bytes: int = 0
    kind: PriorKind = "tensors"
    elapsed_s: float = 0.0
    reason: str = ""
