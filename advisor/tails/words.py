"""What a case that fired says about one pipeline, in numbers."""

from __future__ import annotations

from collections.abc import Callable

from ...records import Evidence, Layout, Pipeline
from ...units import format_count, format_runs
from .rules import HARMFUL_SHARE, HARMFUL_WEIGHT, made, smallest_part

Said = tuple[str, tuple[Evidence, ...]]


def said(name: str, pipeline: Pipeline, layout: Layout) -> Said:
    """The message of a case and the evidence behind it."""
    return _WORDS[name](pipeline, layout)


def refusal(name: str, pipeline: Pipeline) -> Said:
    """The message of a setup that starts no training."""
    ranks, size = pipeline.num_ranks, pipeline.batch_size
    if name == "accelerate.split":
        return _say(
            f"split_batches: a global batch of {format_count(size)} is no multiple of "
            f"{ranks} processes; prepare raises ValueError",
            Evidence(metric="batch size modulo processes", value=size % ranks, threshold=0),
        )
    if name == "multiworker.fit":
        return "Keras 3 raises ValueError in fit under MultiWorkerMirroredStrategy", ()
    return (
        f"Keras on torch has no keras.distribution: nothing spreads a step over {ranks} devices",
        (),
    )


def _say(message: str, *evidence: Evidence) -> Said:
    return message, evidence


def _samples(count: int) -> str:
    return "1 sample" if count == 1 else f"{format_count(count)} samples"


def _of_all(count: int, pipeline: Pipeline) -> str:
    return f"{format_count(count)} of {format_count(pipeline.num_samples or 0)} samples"


def _others(count: int) -> str:
    return format_count(count - 1)


def _short(pipeline: Pipeline, layout: Layout) -> Said:
    each = "" if pipeline.num_ranks == 1 else f" ({format_runs(layout.last)} by rank)"
    weigh = "weighs" if layout.last_samples == 1 else "weigh"
    return _say(
        f"the {_samples(layout.last_samples)} of the epoch's last step{each} {weigh} "
        f"{layout.weight:.1f} times the others under a mean loss",
        Evidence(metric="weight of a sample", value=layout.weight, threshold=HARMFUL_WEIGHT),
    )


def _below_one_batch(pipeline: Pipeline, layout: Layout) -> Said:
    samples = pipeline.num_samples or 0
    all_ranks = "" if pipeline.num_ranks == 1 else " over all ranks"
    several = f" ({format_runs(layout.last)} by rank)" if len(layout.last) > 1 else ""
    steps = "one step" if layout.steps == 1 else f"{format_count(layout.steps)} steps"
    of_all = "all " if max(layout.batches) == 1 and not layout.duplicates else ""
    return _say(
        f"a full batch is {_samples(layout.full_samples)}{all_ranks}, more than the data set has: "
        f"an epoch is {steps} of {of_all}{_samples(layout.last_samples)}{several}; a smaller batch "
        "says what is really trained",
        Evidence(metric="samples", value=samples, threshold=layout.full_samples),
    )


def _contrasted(pipeline: Pipeline, layout: Layout) -> Said:
    del pipeline
    few, many = smallest_part(layout), max(layout.full)
    return _say(
        f"the last batch compares {_samples(few)} with each other where a full one compares "
        f"{format_count(many)}: each has {_others(few)} negatives and not {_others(many)}",
        Evidence(metric="weight of a sample", value=layout.weight, threshold=HARMFUL_WEIGHT),
    )


def _no_steps(pipeline: Pipeline, layout: Layout) -> Said:
    samples = pipeline.num_samples or 0
    wanted = layout.full_samples
    whose = "" if pipeline.num_ranks == 1 else " over all ranks"
    return _say(
        f"drop_last=True and {_samples(samples)}, fewer than one batch of {format_count(wanted)}"
        f"{whose}: no step is made",
        Evidence(metric="samples", value=samples, threshold=wanted),
    )


def _worker_tails(pipeline: Pipeline, layout: Layout) -> Said:
    workers = pipeline.num_workers
    if layout.dropped:
        lost = f"drop_last leaves out {_of_all(layout.dropped, pipeline)}"
        return _say(
            f"each of {workers} workers cuts batches of its own share: {lost}",
            Evidence(metric="dropped samples", value=layout.dropped),
        )
    return _say(
        f"each of {workers} workers cuts batches of its own share: "
        f"{format_count(len(layout.short))} short batches an epoch, of {format_runs(layout.short)}",
        Evidence(metric="short batches", value=len(layout.short)),
    )


def _one_value(pipeline: Pipeline, layout: Layout) -> Said:
    del layout
    model = pipeline.model
    if model.instance_norm and model.instance_norm_values == 1:
        return _say(
            "an InstanceNorm layer sees one value per channel and raises ValueError at any batch "
            "size",
            Evidence(metric="values per channel", value=1, threshold=2),
        )
    who = "the last batch" if pipeline.num_ranks == 1 else "a rank's last batch"
    kind = "BatchNorm" if model.batch_norm else "GroupNorm"
    over = "channel" if model.batch_norm else "group"
    known = (model.batch_norm_values if model.batch_norm else model.group_norm_values) is not None
    unless = "" if known else f" where {'its maps are' if model.batch_norm else 'a group is'} 1x1"
    return _say(
        f"{who} holds one sample; {kind} over one value per {over} raises ValueError{unless}",
        Evidence(metric="samples of the smallest rank", value=1, threshold=2),
    )


def _few_samples(pipeline: Pipeline, layout: Layout) -> Said:
    least = smallest_part(layout)
    whose = "the last batch" if pipeline.num_ranks == 1 else "a rank's last batch"
    return (
        f"{whose} of {_samples(least)} pulls BatchNorm's running statistics once an epoch",
        (
            Evidence(
                metric="samples of the smallest rank",
                value=least,
                threshold=max(8, max(layout.full) / 8),
            ),
        ),
    )


def _empty_batch(pipeline: Pipeline, layout: Layout) -> Said:
    del pipeline
    none = layout.empty_replicas
    return _say(
        f"in the last step ({format_runs(layout.last)} by rank) {none} of {len(layout.last)} ranks "
        "have no sample: their mean loss is NaN",
        Evidence(metric="ranks without a sample", value=none, threshold=0),
    )


def _duplicates(pipeline: Pipeline, layout: Layout) -> Said:
    samples = pipeline.num_samples or 0
    share = layout.duplicates / samples if samples else 0.0
    return _say(
        f"{_of_all(layout.duplicates, pipeline)} are drawn again so that all ranks have equal "
        f"steps ({share:.1%} more work; metrics count them twice)",
        Evidence(metric="share of repeated samples", value=share, threshold=HARMFUL_SHARE),
    )


def _no_samples(pipeline: Pipeline, layout: Layout) -> Said:
    del layout
    evidence = Evidence(
        metric="samples", value=pipeline.num_samples or 0, threshold=pipeline.num_ranks
    )
    if not pipeline.sampler_drop_last:
        return _say(
            f"{_samples(pipeline.num_samples or 0)} for {pipeline.num_ranks} ranks: Lightning's "
            "predict raises AssertionError on a rank without a sample",
            evidence,
        )
    return _say(
        f"DistributedSampler(drop_last=True) leaves none of {_samples(pipeline.num_samples or 0)} "
        f"for {pipeline.num_ranks} ranks",
        evidence,
    )


def _no_sampler(pipeline: Pipeline, layout: Layout) -> Said:
    del layout
    unless = ", unless the dataset shards itself by rank" if pipeline.iterable else ""
    return _say(
        f"each of {pipeline.num_ranks} ranks draws all "
        f"{_samples(pipeline.num_samples or 0)}{unless}: {pipeline.num_ranks} times the work of an "
        "epoch",
        Evidence(metric="times that each sample is drawn", value=pipeline.num_ranks, threshold=1),
    )


def _uneven_steps(pipeline: Pipeline, layout: Layout) -> Said:
    most, least = max(layout.batches), min(layout.batches)
    del pipeline
    return _say(
        f"ranks make {format_count(least)} to {format_count(most)} steps: the longer ones "
        "wait in a collective that the others never enter, "
        "until the timeout or 'Connection closed by peer'",
        Evidence(metric="difference in steps", value=most - least, threshold=0),
    )


def _join(pipeline: Pipeline, layout: Layout) -> Said:
    left = sum(1 for one in layout.batches if one == max(layout.batches))
    ranks = pipeline.num_ranks
    if pipeline.model.sync_batch_norm:
        return _say(
            "Join cannot shadow SyncBatchNorm's collective in the forward pass: ranks that go on "
            "hang there",
            Evidence(metric="SyncBatchNorm layers", value=pipeline.model.sync_batch_norm),
        )
    return _say(
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
    filled = [one for one in sizes if one]
    ranks = len(sizes)
    worst = sum(sizes) / (ranks * min(filled))
    least = sum(sizes) / (ranks * max(filled))
    return _say(
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
    sizes = next((one for one in steps if 0 in one), steps[-1])
    idle = sizes.count(0)
    when = "the last step" if sizes == layout.last and len(steps) > 1 else "every step"
    if max(layout.batches) == 1:
        when = "the only step"
    what = f"{idle} of {len(sizes)} GPUs have no work" if idle else "the GPUs have unequal parts"
    if pipeline.model.loss_in_forward and not idle:
        what += ", and the mean of their losses is a mean of means"
    return _say(
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
    return _say(
        f"the dispatcher shares what is left: {format_runs(layout.last)} samples by rank, each of "
        f"which weighs {layout.weight:.1f} times the others under a mean loss",
        Evidence(metric="weight of a sample", value=layout.weight, threshold=HARMFUL_WEIGHT),
    )


def _gathered(pipeline: Pipeline, layout: Layout) -> Said:
    del pipeline
    kept = layout.last_samples - layout.duplicates
    return _say(
        f"gather_for_metrics returns {format_count(layout.last_samples)} values for the "
        f"{_samples(kept)} of the last step of this iterable dataset",
        Evidence(metric="repeated samples", value=layout.duplicates, threshold=0),
    )


def _accumulation(pipeline: Pipeline, layout: Layout) -> Said:
    tail, whole = layout.accumulation_tail, pipeline.micro_batches
    share = tail / whole
    own = pipeline.setup in ("accelerate", "lightning")
    how = f"divided by {whole}, as this setup does," if own else f"where a loop divides by {whole}"
    return _say(
        f"the last optimizer step accumulates {tail} of {whole} micro-batches; {how} its gradient "
        f"is {share:.3g} of the usual",
        Evidence(metric="share of the gradient", value=share, threshold=1),
    )


def _lightning(pipeline: Pipeline, layout: Layout) -> Said:
    if pipeline.stage == "train":
        return "Lightning's own DistributedSampler shuffles, even with shuffle=False", ()
    return _say(
        f"{_samples(layout.duplicates)} validated twice; a mean over batches is not the mean "
        "over samples",
        Evidence(metric="repeated samples", value=layout.duplicates, threshold=0),
    )


def _dropped(pipeline: Pipeline, layout: Layout) -> Said:
    return _say(
        f"dataloader_drop_last leaves {_of_all(layout.dropped, pipeline)} without a prediction",
        Evidence(metric="dropped samples", value=layout.dropped, threshold=0),
    )


def _keras_one(pipeline: Pipeline, layout: Layout) -> Said:
    del layout
    where = "the last batch" if pipeline.num_ranks == 1 else "a replica's last batch"
    return _say(
        f"{where} holds one sample: BatchNormalization's moving variance shrinks by its momentum, "
        "without an error",
        Evidence(metric="samples of the smallest replica", value=1, threshold=2),
    )


def _replica_nan(pipeline: Pipeline, layout: Layout) -> Said:
    del pipeline
    return _say(
        f"the last batch is cut into {format_runs(layout.last)}: replicas without a sample "
        f"({layout.empty_replicas}) make the weights NaN after epoch 1, while its loss is finite",
        Evidence(metric="empty replicas", value=layout.empty_replicas, threshold=0),
    )


def _replica_scale(pipeline: Pipeline, layout: Layout) -> Said:
    filled = pipeline.num_ranks - layout.empty_replicas
    share = filled / pipeline.num_ranks
    return _say(
        f"the last batch is cut into {format_runs(layout.last)}: the gradient is {share:.3g} of "
        "what it should be",
        Evidence(metric="share of the gradient", value=share, threshold=1),
    )


def _first_batch(pipeline: Pipeline, layout: Layout) -> Said:
    first = made(layout)[0]
    return (
        f"the first batch is cut into {format_runs(first)}: fit raises InvalidArgumentError",
        (
            Evidence(
                metric="batch size modulo replicas",
                value=sum(first) % pipeline.num_ranks,
                threshold=0,
            ),
        ),
    )


def _indivisible(pipeline: Pipeline, layout: Layout) -> Said:
    ranks = pipeline.num_ranks
    if layout.full_samples % ranks and max(layout.batches) > 1:
        size, which = layout.full_samples, "a batch"
    else:
        size, which = layout.last_samples, "the last batch"
    return _say(
        f"{which} of {format_count(size)} cannot be sharded over {ranks} devices: IndivisibleError",
        Evidence(metric="samples modulo devices", value=size % ranks, threshold=0),
    )


def _new_shape(pipeline: Pipeline, layout: Layout) -> Said:
    how = "once" if pipeline.model.compiled == "default" else "for each new size"
    return _say(
        f"the last batch of {format_count(layout.last_samples)} is a new shape: "
        f"it is compiled {how}",
        Evidence(metric="samples of the last step", value=layout.last_samples),
    )


_WORDS: dict[str, Callable[[Pipeline, Layout], Said]] = {
    "loader.short": _short,
    "loader.no-steps": _no_steps,
    "loader.below-one-batch": _below_one_batch,
    "loss.contrastive": _contrasted,
    "iterable.worker-tails": _worker_tails,
    "norm.one-value": _one_value,
    "norm.few-samples": _few_samples,
    "loss.empty-batch": _empty_batch,
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
    "accumulation.tail": _accumulation,
    "lightning.sampler": _lightning,
    "trainer.drop-last": _dropped,
    "keras.one-sample": _keras_one,
    "mirrored.empty-replica-nan": _replica_nan,
    "mirrored.empty-replica-scale": _replica_scale,
    "mirrored.first-batch": _first_batch,
    "jax.indivisible": _indivisible,
    "compiled.shape": _new_shape,
}
