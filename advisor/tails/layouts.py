"""Who gets which number of samples in the last step of an epoch: arithmetic, no framework.

Every formula is compared with the framework's own code by tests/tails and tests/frameworks.
"""

from __future__ import annotations

from ...records import Layout, Pipeline
from .conditions import num_shares
from .pipeline import (
    ACCELERATE_SETUPS,
    DDP_SETUPS,
    GLOBAL,
    batch_is,
    dispatches,
    drops_last,
    sampler_of,
)


def chunks(num_samples: int, num_parts: int) -> tuple[int, ...]:
    """How torch.chunk, DataParallel and tf.distribute cut a batch: ceil(L/R) each until it ends.

    >>> chunks(9, 8), chunks(10, 4), chunks(0, 2)
    ((2, 2, 2, 2, 1, 0, 0, 0), (3, 3, 3, 1), (0, 0))
    """
    if not num_samples:
        return (0,) * num_parts
    size = -(-num_samples // num_parts)
    full, rest = divmod(num_samples, size)
    parts = (size,) * full + ((rest,) if rest else ())
    return parts + (0,) * (num_parts - len(parts))


def slices(num_samples: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """How many of `num_samples` each rank gets that takes its own slice of a batch in turn.

    >>> slices(7, (6, 2)), slices(5, (6, 2))
    ((6, 1), (5, 0))
    """
    parts, left = [], num_samples
    for size in sizes:
        taken = min(size, left)
        parts.append(taken)
        left -= taken
    return tuple(parts)


def layout_of(pipeline: Pipeline, batch_size: int | None = None) -> Layout | str:
    """The end of an epoch, or why it cannot be known.

    Args:
        batch_size: instead of the pipeline's own, for sweeps.
    """
    num_samples = pipeline.num_samples
    size = pipeline.batch_size if batch_size is None else batch_size
    setup, ranks = pipeline.setup, pipeline.num_ranks
    if num_samples is None:
        return "the dataset has no length: give --samples"
    if setup in ("multi-worker-mirrored", "keras-torch") and ranks > 1:
        return "this setup does not train"
    if setup in GLOBAL:
        if batch_is(pipeline) == "per rank":
            size *= ranks
        return _replicated(pipeline, num_samples, size)
    if setup in ACCELERATE_SETUPS:
        return _accelerate(pipeline, num_samples, size)
    if pipeline.rank_batch_sizes:
        return _sliced(pipeline, num_samples, pipeline.rank_batch_sizes)
    if batch_is(pipeline) == "global":
        if size % ranks:
            return f"a global batch of {size} cannot be shared evenly by {ranks} ranks"
        size //= ranks
    if setup in DDP_SETUPS or setup == "lightning":
        return _ranks(pipeline, num_samples, size)
    if num_shares(pipeline) > 1:
        return _workers(pipeline, num_samples, size)
    return _replicated(pipeline, num_samples, size)


def _weight(full_samples: int, last_samples: int) -> float:
    """Weight of a sample in the last micro-step relative to the others."""
    return full_samples / last_samples if 0 < last_samples < full_samples else 1.0


def _steps(batches: int, pipeline: Pipeline) -> tuple[int, int]:
    """Optimizer steps, and the micro-batches of the last one if they are fewer."""
    whole, left = divmod(batches, pipeline.micro_batches)
    return whole + (left > 0), left


def _replicated(pipeline: Pipeline, num_samples: int, size: int) -> Layout:
    """One process draws batches; where it has several replicas it cuts each into chunks."""
    ranks = pipeline.num_ranks
    whole, left = divmod(num_samples, size)
    batches = whole + (left > 0 and not pipeline.drop_last)
    dropped = num_samples - whole * size if pipeline.drop_last else 0
    last_samples = 0 if not batches else size if pipeline.drop_last or not left else left
    steps, tail = _steps(batches, pipeline)
    full: tuple[int, ...] = (size,)
    last: tuple[int, ...] = (last_samples,)
    if ranks > 1:
        full, last = chunks(size, ranks), chunks(last_samples, ranks)
    if pipeline.setup == "jax" and last_samples % ranks:
        last = ()  # refused: nothing is placed
    return Layout(
        full=full,
        last=last if batches else (),
        full_samples=size,
        last_samples=last_samples,
        weight=_weight(size, last_samples),
        batches=(batches,),
        steps=steps,
        dropped=dropped,
        accumulation_tail=tail,
        short=(left,) if left and not pipeline.drop_last else (),
    )


def _ranks(pipeline: Pipeline, num_samples: int, size: int) -> Layout:
    """DDP and Lightning: each rank has a loader of its own over its share of the samples."""
    ranks, sampler = pipeline.num_ranks, sampler_of(pipeline)
    if sampler == "shards":
        own, more = divmod(num_samples, ranks)
        if more:
            return _uneven(pipeline, num_samples, size, (own + 1,) * more + (own,) * (ranks - more))
    elif sampler == "plain":
        own = num_samples
    else:
        own = num_samples // ranks if pipeline.sampler_drop_last else -(-num_samples // ranks)
    whole, left = divmod(own, size)
    drops = drops_last(pipeline)
    batches = whole + (left > 0 and not drops)
    each = whole * size if drops else own
    distinct = each if sampler == "plain" else min(num_samples, each * ranks)
    last = 0 if not batches else size if drops or not left else left
    steps, tail = _steps(batches, pipeline)
    return Layout(
        full=(size,) * ranks,
        last=(last,) * ranks if batches else (),
        full_samples=size * ranks,
        last_samples=last * ranks,
        weight=_weight(size, last),
        batches=(batches,) * ranks,
        steps=steps,
        duplicates=each * ranks - distinct,
        dropped=num_samples - distinct,
        accumulation_tail=tail,
        short=(left,) if left and not drops else (),
    )


def _uneven(pipeline: Pipeline, num_samples: int, size: int, shares: tuple[int, ...]) -> Layout:
    """Ranks with shares of different lengths; nothing makes them equal."""
    drops = drops_last(pipeline)
    batches = tuple(share // size if drops else -(-share // size) for share in shares)
    if pipeline.stops_together:
        batches = (min(batches),) * len(shares)
    most = max(batches)
    last = tuple(
        max(0, min(size, share - (most - 1) * size)) if own == most else 0
        for own, share in zip(batches, shares, strict=True)
    )
    steps, tail = _steps(most, pipeline)
    kept = sum(min(own * size, share) for own, share in zip(batches, shares, strict=True))
    return Layout(
        full=(size,) * len(shares),
        last=last if most else (),
        full_samples=size * len(shares),
        last_samples=sum(last) if most else 0,
        weight=_weight(size * len(shares), sum(last) if most else 0),
        batches=batches,
        steps=steps,
        dropped=num_samples - kept,
        accumulation_tail=tail,
    )


def _sliced(pipeline: Pipeline, num_samples: int, sizes: tuple[int, ...]) -> Layout:
    """Every rank takes its own slice of each global batch."""
    size = sum(sizes)
    whole, left = divmod(num_samples, size)
    drops = pipeline.drop_last
    batches = whole + (left > 0 and not drops)
    last = sizes if drops or not left else slices(left, sizes)
    steps, tail = _steps(batches, pipeline)
    return Layout(
        full=sizes,
        last=last if batches else (),
        full_samples=size,
        last_samples=sum(last) if batches else 0,
        weight=_weight(size, sum(last) if batches else 0),
        batches=(batches,) * len(sizes),
        steps=steps,
        dropped=left if drops else 0,
        accumulation_tail=tail,
    )


def _accelerate(pipeline: Pipeline, num_samples: int, size: int) -> Layout | str:
    """BatchSamplerShard, IterableDatasetShard and DataLoaderDispatcher of Accelerate.

    With `even_batches` (and always for shards of an iterable dataset) the last step is filled with
    samples from the start; the dispatcher only fills it to a multiple of the ranks.
    """
    ranks = pipeline.num_ranks
    if pipeline.split_batches:
        own, step = size // ranks, size
    elif batch_is(pipeline) == "global":
        own, step = size // ranks, size - size % ranks
    else:
        own, step = size, size * ranks
    if not own or (pipeline.split_batches and size % ranks):
        return "the batch size is no multiple of the ranks"
    whole, left = divmod(num_samples, step)
    if left and not pipeline.drop_last and ranks > 1:
        if dispatches(pipeline):
            first = min(num_samples, step)
            share = -(-left // ranks)
            filled = left + (min(ranks, first) if left % ranks else 0)
            last = tuple(max(0, min(share, filled - rank * share)) for rank in range(ranks))
            return _accelerated(pipeline, num_samples, own, whole, last)
        if not pipeline.even_batches and not pipeline.iterable:
            last = slices(left, (own,) * ranks)
            return _accelerated(pipeline, num_samples, own, whole, last)
        return _accelerated(pipeline, num_samples, own, whole, (own,) * ranks)
    return _accelerated(
        pipeline, num_samples, own, whole, (left,) if left and not pipeline.drop_last else ()
    )


def _accelerated(
    pipeline: Pipeline, num_samples: int, own: int, whole: int, rest: tuple[int, ...]
) -> Layout:
    """A layout of `whole` full steps and then one of the sizes `rest`, where there are any.

    A rank without samples in the rest makes no step there, unless the dispatcher hands it an
    empty batch.
    """
    full = (own,) * pipeline.num_ranks
    empty_steps = dispatches(pipeline)
    batches = tuple(whole + (empty_steps or size > 0) for size in rest) if rest else None
    if batches is None:
        batches = (whole,) * pipeline.num_ranks
    steps, tail = _steps(max(batches), pipeline)
    last = rest or (full if whole else ())
    step = own * pipeline.num_ranks
    drawn = whole * step + sum(rest)
    return Layout(
        full=full,
        last=last,
        full_samples=step,
        last_samples=sum(last),
        weight=_weight(step, sum(last)),
        batches=batches,
        steps=steps,
        duplicates=max(0, drawn - num_samples),
        dropped=max(0, num_samples - drawn),
        accumulation_tail=tail,
    )


def _workers(pipeline: Pipeline, num_samples: int, size: int) -> Layout:
    """An iterable dataset that its workers share evenly: each cuts batches of its own share.

    The loader takes batches from the workers in turn and skips those that have none left.
    """
    workers = pipeline.num_workers
    own, more = divmod(num_samples, workers)
    drops = pipeline.drop_last
    shares = [own + (worker < more) for worker in range(workers)]
    counts = [share // size if drops else -(-share // size) for share in shares]
    total = sum(counts)
    most = max(counts)
    final = max(worker for worker in range(workers) if counts[worker] == most)
    short = () if drops else tuple(share % size for share in shares if share % size)
    last = min(size, shares[final] - (most - 1) * size) if total else 0
    steps, tail = _steps(total, pipeline)
    return Layout(
        full=(size,),
        last=(last,) if total else (),
        full_samples=size,
        last_samples=last,
        weight=_weight(size, last),
        batches=(total,),
        steps=steps,
        dropped=num_samples - total * size if drops else 0,
        accumulation_tail=tail,
        short=short,
    )
