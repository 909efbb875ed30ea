"""What the cases of trainers and backends say about a pipeline, in numbers."""

from __future__ import annotations

from collections.abc import Callable

from ....records import Evidence, Layout, Pipeline
from ....units import format_count, format_runs
from ..conditions import made
from .phrases import Said, counted, of_all, say


def _lightning(pipeline: Pipeline, layout: Layout) -> Said:
    if pipeline.stage == "train":
        return "Lightning's own DistributedSampler shuffles, even with shuffle=False", ()
    return say(
        f"{counted(layout.duplicates)} validated twice; a mean over batches is not the mean "
        "over samples",
        Evidence(metric="repeated samples", value=layout.duplicates, threshold=0),
    )


def _dropped(pipeline: Pipeline, layout: Layout) -> Said:
    return say(
        f"dataloader_drop_last leaves {of_all(layout.dropped, pipeline)} without a prediction",
        Evidence(metric="dropped samples", value=layout.dropped, threshold=0),
    )


def _keras_one(pipeline: Pipeline, layout: Layout) -> Said:
    del layout
    where = "the last batch" if pipeline.num_ranks == 1 else "a replica's last batch"
    return say(
        f"{where} holds one sample: BatchNormalization's moving variance shrinks by its momentum, "
        "without an error",
        Evidence(metric="samples of the smallest replica", value=1, threshold=2),
    )


def _replica_nan(pipeline: Pipeline, layout: Layout) -> Said:
    del pipeline
    return say(
        f"the last batch is cut into {format_runs(layout.last)}: replicas without a sample "
        f"({layout.empty_replicas}) make the weights NaN after epoch 1, while its loss is finite",
        Evidence(metric="empty replicas", value=layout.empty_replicas, threshold=0),
    )


def _replica_scale(pipeline: Pipeline, layout: Layout) -> Said:
    filled = pipeline.num_ranks - layout.empty_replicas
    share = filled / pipeline.num_ranks
    return say(
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
    return say(
        f"{which} of {format_count(size)} cannot be sharded over {ranks} devices: IndivisibleError",
        Evidence(metric="samples modulo devices", value=size % ranks, threshold=0),
    )


FRAMEWORK_WORDS: dict[str, Callable[[Pipeline, Layout], Said]] = {
    "lightning.sampler": _lightning,
    "trainer.drop-last": _dropped,
    "keras.one-sample": _keras_one,
    "mirrored.empty-replica-nan": _replica_nan,
    "mirrored.empty-replica-scale": _replica_scale,
    "mirrored.first-batch": _first_batch,
    "jax.indivisible": _indivisible,
}
