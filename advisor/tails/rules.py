"""Which of the cases a layout meets. `fires` is arithmetic only and quick, for sweeps over
thousands of sizes; words are made for the cases that fired.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...records import Layout, Pipeline
from . import conditions
from .pipeline import ACCELERATE, DDP, KERAS, dispatches, sampler_of


class Rule(NamedTuple):
    """One case: for which pipelines it exists, and whether a layout meets it.

    Attributes:
        applies: asked once for a pipeline, whatever the batch size.
        fires: NO, SAID or HARM for one size.
    """

    id: str
    applies: Callable[[Pipeline], bool]
    fires: Callable[[Pipeline, Layout], int]


def rules_for(pipeline: Pipeline) -> tuple[Rule, ...]:
    """The rules that can fire for this pipeline at any size."""
    return tuple(rule for rule in RULES if rule.applies(pipeline))


def _always(pipeline: Pipeline) -> bool:
    del pipeline
    return True


def _setup(*setups: str) -> Callable[[Pipeline], bool]:
    return lambda pipeline: pipeline.setup in setups


def _torch(pipeline: Pipeline) -> bool:
    return pipeline.setup not in KERAS


def _weighs_batches(pipeline: Pipeline) -> bool:
    """Whether each batch counts alike: where they evaluate, frameworks weigh it by its samples."""
    if pipeline.stage == "validate":
        return pipeline.setup not in (*KERAS, "lightning", "trainer")
    return pipeline.stage == "train"


def _has_torch_norm(pipeline: Pipeline) -> bool:
    model = pipeline.model
    local = (
        conditions.count(model.batch_norm)
        + conditions.count(model.group_norm)
        + conditions.count(model.instance_norm)
    )
    return _torch(pipeline) and local > 0


def _compiled(pipeline: Pipeline) -> bool:
    return pipeline.model.compiled in ("default", "static") or pipeline.setup == "tpu"


RULES: tuple[Rule, ...] = (
    Rule(
        "loader.short",
        lambda pipeline: (
            pipeline.model.loss == "mean" and _weighs_batches(pipeline) and not dispatches(pipeline)
        ),
        conditions.short,
    ),
    Rule("loader.below-one-batch", _always, conditions.below_one_batch),
    Rule(
        "loss.contrastive",
        lambda pipeline: pipeline.model.loss == "contrastive" and pipeline.stage != "predict",
        conditions.contrasted,
    ),
    Rule("loader.no-steps", _always, conditions.no_steps),
    Rule(
        "iterable.worker-tails",
        lambda pipeline: conditions.num_shares(pipeline) > 1,
        conditions.worker_tails,
    ),
    Rule("norm.one-value", _has_torch_norm, conditions.one_value),
    Rule(
        "norm.few-samples",
        lambda pipeline: (
            _torch(pipeline)
            and conditions.trains(pipeline)
            and conditions.count(pipeline.model.batch_norm) > 0
        ),
        conditions.few_samples,
    ),
    Rule(
        "loss.empty-batch",
        lambda pipeline: (
            pipeline.num_ranks > 1
            and pipeline.model.loss != "sum"
            and (bool(pipeline.rank_batch_sizes) or pipeline.setup in ACCELERATE)
        ),
        conditions.empty_batch,
    ),
    Rule(
        "distributed.duplicates",
        lambda pipeline: (
            pipeline.setup in (*DDP, "lightning")
            and pipeline.num_ranks > 1
            and not pipeline.rank_batch_sizes
            and sampler_of(pipeline) == "distributed"
        ),
        conditions.duplicates,
    ),
    Rule(
        "distributed.no-samples",
        lambda pipeline: (
            pipeline.sampler_drop_last
            or (pipeline.setup == "lightning" and sampler_of(pipeline) == "shards")
        ),
        conditions.no_samples,
    ),
    Rule(
        "ddp.no-sampler",
        lambda pipeline: (
            pipeline.setup in (*DDP, "lightning")
            and pipeline.num_ranks > 1
            and not pipeline.rank_batch_sizes
            and sampler_of(pipeline) == "plain"
        ),
        conditions.met,
    ),
    Rule(
        "ddp.uneven-steps",
        lambda pipeline: (
            pipeline.setup in ("ddp", "distributed-sampler")
            or (pipeline.setup == "lightning" and pipeline.stage != "predict")
        ),
        conditions.uneven_steps,
    ),
    Rule("join.divisor", _setup("join"), conditions.joined),
    Rule(
        "ddp.uneven-sizes",
        lambda pipeline: (
            pipeline.num_ranks > 1
            and pipeline.model.loss != "sum"
            and (
                pipeline.setup in DDP
                or (pipeline.setup == "accelerate" and pipeline.stage == "train")
            )
        ),
        conditions.uneven_sizes,
    ),
    Rule(
        "syncbn.short-rank",
        lambda pipeline: (
            _torch(pipeline)
            and conditions.trains(pipeline)
            and conditions.count(pipeline.model.sync_batch_norm) > 0
        ),
        conditions.sync_short,
    ),
    Rule("dataparallel.chunks", _setup("data-parallel"), conditions.chunks),
    Rule(
        "accelerate.even-batches",
        lambda pipeline: pipeline.setup in ACCELERATE and pipeline.num_ranks > 1,
        conditions.evened,
    ),
    Rule(
        "accelerate.uneven",
        lambda pipeline: (
            pipeline.setup in ACCELERATE and not pipeline.even_batches and not dispatches(pipeline)
        ),
        conditions.uneven_deal,
    ),
    Rule(
        "accelerate.dispatch",
        lambda pipeline: pipeline.setup in ACCELERATE and dispatches(pipeline),
        conditions.short,
    ),
    Rule(
        "accelerate.gather-for-metrics",
        lambda pipeline: (
            pipeline.setup in ACCELERATE
            and pipeline.stage != "train"
            and pipeline.iterable
            and not dispatches(pipeline)
        ),
        conditions.gathered,
    ),
    Rule(
        "accumulation.tail",
        lambda pipeline: (
            pipeline.micro_batches > 1
            and not pipeline.mean_over_accumulated
            and pipeline.stage == "train"
            and pipeline.setup != "trainer"
            and pipeline.setup not in KERAS
        ),
        conditions.accumulation,
    ),
    Rule(
        "lightning.sampler",
        lambda pipeline: (
            pipeline.setup == "lightning"
            and pipeline.num_ranks > 1
            and pipeline.sampler is None
            and not pipeline.sampler_drop_last
            and sampler_of(pipeline) == "distributed"
        ),
        conditions.lightning,
    ),
    Rule(
        "trainer.drop-last",
        lambda pipeline: (
            pipeline.setup == "trainer" and pipeline.drop_last and pipeline.stage != "train"
        ),
        conditions.dropped,
    ),
    Rule(
        "keras.one-sample",
        lambda pipeline: (
            pipeline.setup in KERAS
            and conditions.trains(pipeline)
            and conditions.count(pipeline.model.batch_norm) > 0
        ),
        conditions.keras_one,
    ),
    Rule(
        "mirrored.empty-replica-nan",
        lambda pipeline: (
            pipeline.setup == "mirrored"
            and conditions.trains(pipeline)
            and conditions.count(pipeline.model.batch_norm) > 0
        ),
        conditions.empty_replica,
    ),
    Rule(
        "mirrored.empty-replica-scale",
        lambda pipeline: (
            pipeline.setup == "mirrored"
            and conditions.trains(pipeline)
            and not conditions.count(pipeline.model.batch_norm)
        ),
        conditions.empty_replica,
    ),
    Rule("mirrored.first-batch", _setup("mirrored"), conditions.first_batch),
    Rule(
        "jax.indivisible",
        lambda pipeline: pipeline.setup == "jax" and pipeline.num_ranks > 1,
        conditions.indivisible,
    ),
    Rule("compiled.shape", _compiled, conditions.new_shape),
    Rule(
        "model.multiple",
        lambda pipeline: pipeline.model.multiple_of > 1 and conditions.trains(pipeline),
        conditions.turned_down,
    ),
)
