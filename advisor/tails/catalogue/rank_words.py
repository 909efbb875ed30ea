"""What the cases of several ranks or devices say about a pipeline, in numbers."""

from __future__ import annotations

from collections.abc import Callable

from ....records import Evidence, Layout, Pipeline
from ....units import format_count, format_runs
from ..conditions import HARMFUL_SHARE, HARMFUL_WEIGHT, made
from .phrases import Said, counted, of_all, say


def _duplicates(pipeline: Pipeline, layout: Layout) -> Said:
    samples = pipeline.num_samples or 0
    share = layout.duplicates / samples if samples else 0.0
    return say(
        f"{of_all(layout.duplicates, pipeline)} are drawn again so that all ranks have equal "
        f"steps ({share:.1%} more work; metrics count them twice)",
        Evidence(metric="share of repeated samples", value=share, threshold=HARMFUL_SHARE),
    )


def _no_samples(pipeline: Pipeline, layout: Layout) -> Said:
    del layout
    evidence = Evidence(
        metric="samples", value=pipeline.num_samples or 0, threshold=pipeline.num_ranks
    )
    if not pipeline.sampler_drop_last:
        return say(
            f"{counted(pipeline.num_samples or 0)} for {pipeline.num_ranks} ranks: Lightning's "
            "predict raises AssertionError on a rank without a sample",
            evidence,
        )
    return say(
        f"DistributedSampler(drop_last=True) leaves none of {counted(pipeline.num_samples or 0)} "
        f"for {pipeline.num_ranks} ranks",
        evidence,
    )


def _no_sampler(pipeline: Pipeline, layout: Layout) -> Said:
    del layout
    unless = ", unless the dataset shards itself by rank" if pipeline.iterable else ""
    return say(
        f"each of {pipeline.num_ranks} ranks draws all "
        f"{counted(pipeline.num_samples or 0)}{unless}: {pipeline.num_ranks} times the work of an "
        "epoch",
        Evidence(metric="times that each sample is drawn", value=pipeline.num_ranks, threshold=1),
    )


def _uneven_steps(pipeline: Pipeline, layout: Layout) -> Said:
    most, least = max(layout.batches), min(layout.batches)
    del pipeline
    return say(
        f"ranks make {format_count(least)} to {format_count(most)} steps: the longer ones "
        "wait in a collective that the others never enter, "
        "until the timeout or 'Connection closed by peer'",
        Evidence(metric="difference in steps", value=most - least, threshold=0),
    )


def _join(pipeline: Pipeline, layout: Layout) -> Said:
    left = sum(1 for count in layout.batches if count == max(layout.batches))
    ranks = pipeline.num_ranks
    if pipeline.model.sync_batch_norm:
        return say(
            "Join cannot shadow SyncBatchNorm's collective in the forward pass: ranks that go on "
            "hang there",
            Evidence(metric="SyncBatchNorm layers", value=pipeline.model.sync_batch_norm),
        )
    return say(
        f"in the last step {left} of {ranks} ranks have data and Join divides by {ranks}: the "
        f"gradient is {left / ranks:.3g} of their mean",
        Evidence(metric="share of the gradient", value=left / ranks, threshold=1),
    )


def _uneven_sizes(pipeline: Pipeline, layout: Layout) -> Said:
    del pipeline
    steps = made(layout)
    whose, sizes = "a full step", steps[0]
    if len({size for size in sizes if size}) < 2 or sizes != layout.full:
        whose, sizes = "the last step", layout.last
    filled = [size for size in sizes if size]
    ranks = len(sizes)
    worst = sum(sizes) / (ranks * min(filled))
    least = sum(sizes) / (ranks * max(filled))
    return say(
        f"{whose} has {format_runs(sizes)} samples by rank and DDP averages the ranks' means: "
        f"samples weigh {least:.2f} to {worst:.2f} times what they should",
        Evidence(metric="weight of a sample of the smallest rank", value=worst, threshold=1),
    )


def _sync(pipeline: Pipeline, layout: Layout) -> Said:
    if layout.last_samples == 1 and pipeline.num_ranks > 1:
        message = "the last step holds one sample over all ranks, which SyncBatchNorm lets pass"
    elif layout.last_samples == 1:
        message = "SyncBatchNorm over one value raises ValueError in a world of one rank"
    else:
        message = (
            f"the last step has {format_runs(layout.last)} samples by rank; SyncBatchNorm weighs "
            "them by their counts (on GPUs; on CPU tensors it raises)"
        )
    return message, (Evidence(metric="samples of the last step", value=layout.last_samples),)


def _chunks(pipeline: Pipeline, layout: Layout) -> Said:
    steps = made(layout)
    uneven = [step for step in steps if step[0] != step[-1]]
    sizes = next((step for step in uneven if 0 in step), uneven[-1])
    idle = sizes.count(0)
    when = "the last step" if sizes == layout.last and len(steps) > 1 else "every step"
    if max(layout.batches) == 1:
        when = "the only step"
    what = f"{idle} of {len(sizes)} GPUs have no work" if idle else "the GPUs have unequal parts"
    if pipeline.model.loss_in_forward and not idle:
        what += ", and the mean of their losses is a mean of means"
    if len(set(filter(None, sizes))) > 1:
        what += "; an output whose batch is not in axis 0 cannot be gathered, and that step fails"
    return say(
        f"{when} is cut into {format_runs(sizes)}: {what}",
        Evidence(metric="GPUs without work", value=idle, threshold=0),
    )


def _uneven_deal(pipeline: Pipeline, layout: Layout) -> Said:
    del pipeline
    most, least = max(layout.batches), min(layout.batches)
    if most > least:
        message = (
            f"even_batches=False: ranks make {format_count(least)} to {format_count(most)} steps, "
            "which hangs or aborts; "
            "gather on unequal shapes aborts the process"
        )
    else:
        message = (
            f"even_batches=False: the last step has {format_runs(layout.last)} samples by rank; "
            "gather on unequal shapes aborts the process"
        )
    return message, (Evidence(metric="difference in steps", value=most - least, threshold=0),)


def _dispatched(pipeline: Pipeline, layout: Layout) -> Said:
    del pipeline
    return say(
        f"the dispatcher shares what is left: {format_runs(layout.last)} samples by rank, each of "
        f"which weighs {layout.weight:.1f} times the others under a mean loss",
        Evidence(metric="weight of a sample", value=layout.weight, threshold=HARMFUL_WEIGHT),
    )


def _gathered(pipeline: Pipeline, layout: Layout) -> Said:
    del pipeline
    kept = layout.last_samples - layout.duplicates
    return say(
        f"gather_for_metrics returns {format_count(layout.last_samples)} values for the "
        f"{counted(kept)} of the last step of this iterable dataset",
        Evidence(metric="repeated samples", value=layout.duplicates, threshold=0),
    )


RANK_WORDS: dict[str, Callable[[Pipeline, Layout], Said]] = {
    "distributed.duplicates": _duplicates,
    "distributed.no-samples": _no_samples,
    "ddp.no-sampler": _no_sampler,
    "ddp.uneven-steps": _uneven_steps,
    "join.divisor": _join,
    "ddp.uneven-sizes": _uneven_sizes,
    "syncbn.short-rank": _sync,
    "dataparallel.chunks": _chunks,
    "accelerate.even-batches": _duplicates,
    "accelerate.uneven": _uneven_deal,
    "accelerate.dispatch": _dispatched,
    "accelerate.gather-for-metrics": _gathered,
}
