"""The input pipeline as far as the end of an epoch depends on it, and what happens there."""

from __future__ import annotations

from typing import Any, Literal

from .advice import CleanSize, Evidence
from .base import Count, Record
from .checks import Loss

Setup = Literal[
    "dataloader",
    "distributed-sampler",  # DDP whose loaders have a DistributedSampler
    "data-parallel",  # torch.nn.DataParallel
    "ddp",
    "join",  # DDP inside torch.distributed.algorithms.join.Join
    "accelerate",
    "lightning",
    "trainer",  # Hugging Face Trainer, one process a rank
    "keras-torch",
    "keras-tensorflow",
    "keras-jax",
    "mirrored",  # Keras 3 with tf.distribute.MirroredStrategy
    "multi-worker-mirrored",  # Keras 3 with tf.distribute.MultiWorkerMirroredStrategy
    "jax",  # Keras 3 on JAX with keras.distribution.DataParallel
    "tpu",  # Keras 3 with tf.distribute.TPUStrategy
]
Sampler = Literal[
    "distributed",  # torch's DistributedSampler: pads from the start, equal shares
    "plain",  # no sharding: every rank draws all samples
    "shards",  # each rank holds its own share: every R-th sample, nothing padded
]
BatchIs = Literal["per rank", "global"]
Stage = Literal["train", "validate", "predict"]
Severity = Literal["error", "nan", "bias", "waste", "slow"]


class ModelFacts(Record, frozen=True, kw_only=True):
    """Facts about the model that decide on a short batch. `None` is not known.

    Attributes:
        batch_norm, sync_batch_norm, group_norm, instance_norm: layers in training mode.
        batch_norm_values: values per channel that one sample gives to the BatchNorm layer that
            sees the fewest: height x width, 1 behind a flattened or pooled input.
        group_norm_values: values per group that one sample gives to the smallest GroupNorm.
        instance_norm_values: values per channel that one sample gives to the smallest InstanceNorm.
        optimizer: name of its class.
        compiled: how shapes are compiled: `default` and `dynamic` as torch.compile has them,
            `static` one compilation a shape (torch.compile(dynamic=False), JAX, tf.function).
        loss: how the loss reduces a batch; `contrastive` compares the samples of a batch with each
            other.
        loss_in_forward: the model's own forward returns the reduced loss.
        multiple_of: batches that it takes are multiples of this.
        any_up_to_multiple: so are batches of at most that many samples, whatever they are.
    """

    batch_norm: int | None = None
    sync_batch_norm: int | None = None
    group_norm: int | None = None
    instance_norm: int | None = None
    batch_norm_values: int | None = None
    group_norm_values: int | None = None
    instance_norm_values: int | None = None
    optimizer: str | None = None
    compiled: Literal["no", "default", "static", "dynamic"] | None = None
    loss: Loss = "mean"
    loss_in_forward: bool = False
    multiple_of: Count = 1
    any_up_to_multiple: bool = False


class Pipeline(Record, frozen=True, kw_only=True):
    """How samples become batches.

    Attributes:
        num_samples: of the data set, over all ranks; `None` if it has no length.
        batch_size: samples per micro-batch, of one rank or of all as `batch_is` says.
        batch_is: `None` takes what the setup's own argument means.
        num_ranks: processes, replicas or devices that share a step.
        drop_last: of the DataLoader or the tf.data pipeline (`drop_remainder`).
        sampler: how ranks share the samples; `None` takes what the setup does by itself.
        sampler_drop_last: `DistributedSampler(drop_last=True)`.
        iterable: an iterable dataset; its samples are taken to be split evenly over workers.
        num_workers: data workers of a rank; they matter for an iterable dataset.
        even_batches, split_batches, dispatch_batches: as Accelerate names them.
        micro_batches: batches per optimizer step (gradient accumulation).
        rank_batch_sizes: samples that each rank takes of every step where ranks differ.
        mean_over_accumulated: the last optimizer step divides by the micro-batches that it really
            accumulated, not by `micro_batches`.
        stops_together: ranks with more batches stop when the first is done (of Join:
            `throw_on_early_termination=True`, or a number of steps agreed on before).
        divide_by_initial_world_size: as Join names it.
        stage: what the loader is for.
    """

    num_samples: int | None
    batch_size: int
    setup: Setup = "dataloader"
    batch_is: BatchIs | None = None
    num_ranks: int = 1
    drop_last: bool = False
    sampler: Sampler | None = None
    sampler_drop_last: bool = False
    iterable: bool = False
    num_workers: int = 0
    even_batches: bool = True
    split_batches: bool = False
    dispatch_batches: bool | None = None
    micro_batches: int = 1
    rank_batch_sizes: tuple[int, ...] = ()
    mean_over_accumulated: bool = False
    stops_together: bool = False
    divide_by_initial_world_size: bool = True
    stage: Stage = "train"
    model: ModelFacts = ModelFacts()


class Layout(Record, frozen=True, kw_only=True):
    """The epoch's end, sample by sample.

    Attributes:
        full: samples of each rank or replica in a full micro-step.
        last: the same in the last micro-step of the epoch; empty if there is no step, or if the
            framework refuses to place the samples.
        full_samples, last_samples: all of them together.
        weight: what a sample of a short last micro-step weighs under a mean loss against one of
            a full micro-step; 1 where it is not short.
        batches: micro-steps per epoch of each process.
        steps: optimizer steps per epoch of the process that makes the most.
        duplicates: samples that are drawn more than once, counted as often as they are too many.
        dropped: samples that the epoch leaves out.
        accumulation_tail: micro-batches in the last optimizer step if they are fewer, else 0.
        short: every batch of the epoch that is not full, where data workers make several.
    """

    full: tuple[int, ...]
    last: tuple[int, ...]
    full_samples: int
    last_samples: int
    weight: float
    batches: tuple[int, ...]
    steps: int
    duplicates: int = 0
    dropped: int = 0
    accumulation_tail: int = 0
    short: tuple[int, ...] = ()

    @property
    def is_short(self) -> bool:
        """Whether the last micro-step has fewer samples than the others."""
        return self.weight > 1

    @property
    def empty_replicas(self) -> int:
        """Ranks or replicas without a sample in the last micro-step."""
        return self.last.count(0)


class Fix(Record, frozen=True, kw_only=True):
    """A remedy as code for the framework of the pipeline.

    Attributes:
        changes: fields of the pipeline that are another then; with
            `batchadvisor.tails(pipeline, **changes)` the finding is gone, and steps remain.
    """

    title: str
    snippet: str
    changes: dict[str, Any] = {}


class TailFinding(Record, frozen=True, kw_only=True):
    """One case that this pipeline meets.

    Attributes:
        id: `batchadvisor tails --explain ID` tells more.
        harmful: whether it is worth a change; else it is only said.
        fixes: those of the case that remove it from this pipeline and leave it steps.
    """

    id: str
    severity: Severity
    harmful: bool
    message: str
    evidence: tuple[Evidence, ...] = ()
    fixes: tuple[Fix, ...] = ()


class TailReport(Record, frozen=True, kw_only=True):
    """The effects of the end of an epoch.

    Attributes:
        layout: `None` where it cannot be known.
        nearest_clean: sizes near by without a harmful tail, where this size has one.
        unavailable: field to the reason why it is empty.
    """

    pipeline: Pipeline
    layout: Layout | None
    findings: tuple[TailFinding, ...] = ()
    nearest_clean: tuple[CleanSize, ...] = ()
    unavailable: dict[str, str] = {}


class SweepRow(Record, frozen=True, kw_only=True):
    """One size of a sweep.

    Attributes:
        last: samples of each rank in the last micro-step if that is short, else empty.
        ids: the cases that it meets and that do harm.
        also: those that it meets without much harm.
    """

    batch_size: int
    steps: int
    last: tuple[int, ...]
    dropped: int
    duplicates: int
    weight: float
    ids: tuple[str, ...]
    also: tuple[str, ...] = ()


class Case(Record, frozen=True, kw_only=True):
    """One thing that a short or uneven last batch does.

    Attributes:
        number: for `--explain 4`.
        what: what happens, as it was seen or read; not a forecast for one pipeline.
        advice: what to do, in words; the fixes are code.
        fixes: names in fixes.py.
    """

    id: str
    number: int
    severity: Severity
    title: str
    what: str
    advice: str
    fixes: tuple[str, ...]


class Proof(Record, frozen=True, kw_only=True):
    """How one part of a case is known.

    Attributes:
        how: a test provoked it, or read the code that does it, or has to wait for a GPU.
        what: what was provoked or read.
        test: its name.
        versions: of the packages that it used.
    """

    how: Literal["ran", "read in source", "needs a GPU"]
    what: str
    test: str
    versions: dict[str, str] = {}


class Explained(Record, frozen=True, kw_only=True):
    """The page of one case.

    Attributes:
        example: a pipeline that meets the case; the fixes are those that remove it there.
    """

    case: Case
    example: Pipeline
    fixes: tuple[Fix, ...]
    proofs: tuple[Proof, ...]
