"""The meaning of a description of the input pipeline: defaults of each setup, contradictions."""

from __future__ import annotations

from ...errors import UsageError
from ...records import BatchIs, Pipeline, Sampler, Setup

GLOBAL: tuple[Setup, ...] = (
    "data-parallel",
    "keras-torch",
    "keras-tensorflow",
    "keras-jax",
    "mirrored",
    "multi-worker-mirrored",
    "jax",
    "tpu",
)
"""Setups whose own batch size counts the samples of all ranks."""
DDP_SETUPS: tuple[Setup, ...] = ("ddp", "distributed-sampler", "join")
ACCELERATE_SETUPS: tuple[Setup, ...] = ("accelerate", "trainer")
KERAS: tuple[Setup, ...] = (
    "keras-torch",
    "keras-tensorflow",
    "keras-jax",
    "mirrored",
    "multi-worker-mirrored",
    "jax",
    "tpu",
)
SINGLE: tuple[Setup, ...] = ("dataloader", "keras-tensorflow", "keras-jax")
"""Setups of one device."""
MAX_JOB_RANKS = 1 << 20


def batch_is(pipeline: Pipeline) -> BatchIs:
    """Whether `batch_size` counts the samples of one rank or of all."""
    if pipeline.batch_is is not None:
        return pipeline.batch_is
    if pipeline.setup in GLOBAL or (pipeline.setup in ACCELERATE_SETUPS and pipeline.split_batches):
        return "global"
    return "per rank"


def own_size(pipeline: Pipeline) -> int:
    """The batch size that a loader of this setup is given: one rank's, or that of all replicas."""
    size, ranks = pipeline.batch_size, pipeline.num_ranks
    if pipeline.setup in GLOBAL:
        return size * ranks if pipeline.batch_is == "per rank" else size
    if pipeline.split_batches or pipeline.rank_batch_sizes:
        return size
    return max(1, size // ranks) if batch_is(pipeline) == "global" else size


def sampler_of(pipeline: Pipeline) -> Sampler:
    """How the ranks of DDP and Lightning share the samples."""
    if pipeline.sampler is not None:
        return pipeline.sampler
    if pipeline.setup == "join" or _lightning_deals(pipeline):
        return "shards"
    return "plain" if pipeline.iterable else "distributed"


def _lightning_deals(pipeline: Pipeline) -> bool:
    """Whether Lightning puts its own sampler in to predict: an iterable dataset takes none."""
    return pipeline.setup == "lightning" and pipeline.stage == "predict" and not pipeline.iterable


def dispatches(pipeline: Pipeline) -> bool:
    """Whether Accelerate's main process reads the batches of all ranks and cuts them."""
    if pipeline.dispatch_batches is not None:
        return pipeline.dispatch_batches
    return pipeline.iterable and pipeline.setup in ACCELERATE_SETUPS


def drops_last(pipeline: Pipeline) -> bool:
    """Whether a short last batch is left out; not where Lightning's own sampler predicts."""
    return pipeline.drop_last and not _lightning_deals(pipeline)


def refuse(pipeline: Pipeline) -> str:
    """Why a setup starts no training at all, whatever the tail; empty if it does."""
    setup, ranks, size = pipeline.setup, pipeline.num_ranks, pipeline.batch_size
    if setup == "multi-worker-mirrored" and ranks > 1:
        return "multiworker.fit"
    if setup == "keras-torch" and ranks > 1:
        return "keras-torch.distribution"
    if setup in ACCELERATE_SETUPS and pipeline.split_batches and size % ranks:
        return "accelerate.split"
    return ""


def check(pipeline: Pipeline) -> None:
    """Refuses what describes no pipeline.

    Raises:
        UsageError: a number is out of range, or two facts contradict each other.
    """
    _check_numbers(pipeline)
    setup, ranks = pipeline.setup, pipeline.num_ranks
    if setup in SINGLE and ranks > 1:
        _fail(
            f"The setup {setup} is one device, and {ranks} ranks are given.",
            "Name what joins them: --setup ddp, data-parallel, accelerate, lightning, mirrored.",
        )
    if setup == "distributed-sampler" and pipeline.sampler not in (None, "distributed"):
        _fail(
            f"The setup distributed-sampler contradicts the sampler {pipeline.sampler}.",
            "Take --setup ddp for DDP with another sampler.",
        )
    if pipeline.sampler is not None and setup not in (*DDP_SETUPS, "lightning"):
        _fail(f"A sampler says nothing about the setup {setup}.", "It belongs to DDP or Lightning.")
    if pipeline.sampler_drop_last and (
        setup not in (*DDP_SETUPS, "lightning") or sampler_of(pipeline) != "distributed"
    ):
        _fail(
            "drop_last of a DistributedSampler is given, and this setup has none.",
            "Take --drop-last for the loader's.",
        )
    given = not pipeline.even_batches or pipeline.split_batches or pipeline.dispatch_batches
    if setup not in ACCELERATE_SETUPS and (given or pipeline.dispatch_batches is not None):
        _fail(
            "even_batches, split_batches and dispatch_batches belong to Accelerate.",
            "Take --setup accelerate.",
        )
    if setup in ACCELERATE_SETUPS and pipeline.split_batches and pipeline.batch_is == "per rank":
        _fail("Under split_batches the batch size is that of all ranks.", "Leave --per-rank out.")
    if (
        pipeline.iterable
        and sampler_of(pipeline) == "distributed"
        and setup in (*DDP_SETUPS, "lightning")
    ):
        _fail(
            "An iterable dataset has no sampler, and a distributed one is named.",
            "Take --sampler shards if each rank reads its own part, else --sampler plain.",
        )
    if setup not in DDP_SETUPS and (
        pipeline.stops_together or not pipeline.divide_by_initial_world_size
    ):
        _fail(
            "stops_together and divide_by_initial_world_size belong to DDP and Join.",
            "Take --setup ddp or join.",
        )
    if pipeline.rank_batch_sizes:
        _check_rank_sizes(pipeline)
    elif batch_is(pipeline) == "global" and setup not in GLOBAL and not pipeline.split_batches:
        _check_global(pipeline)


def _check_numbers(pipeline: Pipeline) -> None:
    if pipeline.num_samples is not None and pipeline.num_samples < 1:
        _fail(
            f"{pipeline.num_samples} samples are no data set.",
            "Give the number of samples of one epoch, at least 1.",
        )
    for name, value, least in (
        ("the batch size", pipeline.batch_size, 1),
        ("the number of ranks", pipeline.num_ranks, 1),
        ("the number of micro-batches", pipeline.micro_batches, 1),
        ("the number of workers", pipeline.num_workers, 0),
    ):
        if value < least:
            _fail(f"{value} cannot be {name}.", f"It is at least {least}.")
    if pipeline.num_ranks > MAX_JOB_RANKS:
        _fail(f"{pipeline.num_ranks} ranks are more than any job has.", f"At most {MAX_JOB_RANKS}.")


def _check_rank_sizes(pipeline: Pipeline) -> None:
    sizes, ranks = pipeline.rank_batch_sizes, pipeline.num_ranks
    if pipeline.setup not in DDP_SETUPS:
        _fail("Batch sizes per rank belong to DDP.", "Take --setup ddp.")
    if len(sizes) != ranks:
        _fail(
            f"{len(sizes)} batch sizes are given for {ranks} ranks.", "Give one size for each rank."
        )
    if min(sizes) < 0 or sum(sizes) < 1:
        _fail(f"{sizes} cannot be batch sizes.", "Each is at least 0, and one at least 1.")
    if sum(sizes) != pipeline.batch_size:
        _fail(
            f"The batch sizes of the ranks add up to {sum(sizes)}, not to {pipeline.batch_size}.",
            "The batch size counts the samples of all ranks then.",
        )


def _check_global(pipeline: Pipeline) -> None:
    if pipeline.batch_size % pipeline.num_ranks:
        _fail(
            f"A global batch of {pipeline.batch_size} cannot be shared evenly by "
            f"{pipeline.num_ranks} ranks.",
            "Take a multiple, or name the size of each rank: --rank-batch-sizes.",
        )


def _fail(what: str, remedy: str) -> None:
    raise UsageError(what, remedy)
