"""What the cases of one process say about a pipeline, in numbers."""

from __future__ import annotations

from collections.abc import Callable

from ....records import Evidence, Layout, Pipeline
from ....units import format_count, format_runs
from ..conditions import HARMFUL_WEIGHT, num_shares, smallest_part, untaken
from .phrases import Said, counted, of_all, others, say


def _short(pipeline: Pipeline, layout: Layout) -> Said:
    placed = pipeline.num_ranks > 1 and layout.last
    each = f" ({format_runs(layout.last)} by rank)" if placed else ""
    weigh = "weighs" if layout.last_samples == 1 else "weigh"
    return say(
        f"the {counted(layout.last_samples)} of the epoch's last step{each} {weigh} "
        f"{layout.weight:.1f} times the others under a mean loss",
        Evidence(metric="weight of a sample", value=layout.weight, threshold=HARMFUL_WEIGHT),
    )


def _below_one_batch(pipeline: Pipeline, layout: Layout) -> Said:
    samples = pipeline.num_samples or 0
    all_ranks = "" if pipeline.num_ranks == 1 else " over all ranks"
    several = f" ({format_runs(layout.last)} by rank)" if len(layout.last) > 1 else ""
    steps = "one step" if layout.steps == 1 else f"{format_count(layout.steps)} steps"
    every = "all " if max(layout.batches) == 1 and not layout.duplicates else ""
    return say(
        f"a full batch is {counted(layout.full_samples)}{all_ranks}, more than the data set has: "
        f"an epoch is {steps} of {every}{counted(layout.last_samples)}{several}; a smaller batch "
        "says what is really trained",
        Evidence(metric="samples", value=samples, threshold=layout.full_samples),
    )


def _contrasted(pipeline: Pipeline, layout: Layout) -> Said:
    del pipeline
    few, many = smallest_part(layout), max(layout.full)
    return say(
        f"the last batch compares {counted(few)} with each other where a full one compares "
        f"{format_count(many)}: each has {others(few)} negatives and not {others(many)}",
        Evidence(metric="weight of a sample", value=layout.weight, threshold=HARMFUL_WEIGHT),
    )


def _no_steps(pipeline: Pipeline, layout: Layout) -> Said:
    samples = pipeline.num_samples or 0
    wanted = layout.full_samples
    whose = "" if pipeline.num_ranks == 1 else " over all ranks"
    shares = num_shares(pipeline)
    if shares > 1:
        share = -(-samples // shares)
        return say(
            f"drop_last=True, and each of {shares} workers cuts batches of its own "
            f"{counted(share)} of {format_count(samples)}, fewer than one batch of "
            f"{format_count(wanted)}: no step is made",
            Evidence(metric="samples of a worker", value=share, threshold=wanted),
        )
    return say(
        f"drop_last=True and {counted(samples)}, fewer than one batch of {format_count(wanted)}"
        f"{whose}: no step is made",
        Evidence(metric="samples", value=samples, threshold=wanted),
    )


def _worker_tails(pipeline: Pipeline, layout: Layout) -> Said:
    workers = pipeline.num_workers
    if layout.dropped:
        lost = f"drop_last leaves out {of_all(layout.dropped, pipeline)}"
        return say(
            f"each of {workers} workers cuts batches of its own share: {lost}",
            Evidence(metric="dropped samples", value=layout.dropped),
        )
    return say(
        f"each of {workers} workers cuts batches of its own share: "
        f"{format_count(len(layout.short))} short batches an epoch, of {format_runs(layout.short)}",
        Evidence(metric="short batches", value=len(layout.short)),
    )


def _one_value(pipeline: Pipeline, layout: Layout) -> Said:
    del layout
    model = pipeline.model
    if model.instance_norm and model.instance_norm_values == 1:
        return say(
            "an InstanceNorm layer sees one value per channel and raises ValueError at any batch "
            "size",
            Evidence(metric="values per channel", value=1, threshold=2),
        )
    who = "the last batch" if pipeline.num_ranks == 1 else "a rank's last batch"
    kind = "BatchNorm" if model.batch_norm else "GroupNorm"
    over = "channel" if model.batch_norm else "group"
    known = (model.batch_norm_values if model.batch_norm else model.group_norm_values) is not None
    unless = "" if known else f" where {'its maps are' if model.batch_norm else 'a group is'} 1x1"
    return say(
        f"{who} holds one sample; {kind} over one value per {over} raises ValueError{unless}",
        Evidence(metric="samples of the smallest rank", value=1, threshold=2),
    )


def _few_samples(pipeline: Pipeline, layout: Layout) -> Said:
    least = smallest_part(layout)
    whose = "the last batch" if pipeline.num_ranks == 1 else "a rank's last batch"
    return (
        f"{whose} of {counted(least)} pulls BatchNorm's running statistics once an epoch",
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
    return say(
        f"in the last step ({format_runs(layout.last)} by rank) {none} of {len(layout.last)} ranks "
        "have no sample: their mean loss is NaN",
        Evidence(metric="ranks without a sample", value=none, threshold=0),
    )


def _accumulation(pipeline: Pipeline, layout: Layout) -> Said:
    tail, whole = layout.accumulation_tail, pipeline.micro_batches
    share = tail / whole
    own = pipeline.setup in ("accelerate", "lightning")
    how = f"divided by {whole}, as this setup does," if own else f"where a loop divides by {whole}"
    return say(
        f"the last optimizer step accumulates {tail} of {whole} micro-batches; {how} its gradient "
        f"is {share:.3g} of the usual",
        Evidence(metric="share of the gradient", value=share, threshold=1),
    )


def _new_shape(pipeline: Pipeline, layout: Layout) -> Said:
    if pipeline.setup == "tpu":
        return say(
            f"the last batch of {format_count(layout.last_samples)} is a new shape: TPUStrategy "
            "pads it, or XLA compiles the step again (by TensorFlow's documentation; not run on "
            "a TPU)",
            Evidence(metric="samples of the last step", value=layout.last_samples),
        )
    how = "once" if pipeline.model.compiled == "default" else "for each new size"
    return say(
        f"the last batch of {format_count(layout.last_samples)} is a new shape: "
        f"it is compiled {how}",
        Evidence(metric="samples of the last step", value=layout.last_samples),
    )


def _turned_down(pipeline: Pipeline, layout: Layout) -> Said:
    size, step = untaken(pipeline, layout) or 0, pipeline.model.multiple_of
    which = "the last batch" if size in layout.last and layout.is_short else "a batch"
    whose = "" if pipeline.num_ranks == 1 else " of a rank"
    at_most = f"at most {step} samples or " if pipeline.model.any_up_to_multiple else ""
    return say(
        f"{which}{whose} has {counted(size)}, and the model takes {at_most}multiples of {step} "
        "only",
        Evidence(metric="samples modulo the multiple", value=size % step, threshold=0),
    )


LOADER_WORDS: dict[str, Callable[[Pipeline, Layout], Said]] = {
    "loader.short": _short,
    "loader.no-steps": _no_steps,
    "loader.below-one-batch": _below_one_batch,
    "loss.contrastive": _contrasted,
    "iterable.worker-tails": _worker_tails,
    "norm.one-value": _one_value,
    "norm.few-samples": _few_samples,
    "loss.empty-batch": _empty_batch,
    "accumulation.tail": _accumulation,
    "compiled.shape": _new_shape,
    "model.multiple": _turned_down,
}
