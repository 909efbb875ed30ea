"""Which of the cases a layout meets. `fires` is arithmetic only and quick, for sweeps over
thousands of sizes; words are made for the cases that fired.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...records import Layout, Pipeline
from .pipeline import ACCELERATE, DDP, KERAS, dispatches, sampler_of

SMALL_BATCH_NORM = 8
"""Below this, batch statistics are noisy (Wu and He 2018, arXiv 1803.08494, figure 1)."""
HARMFUL_WEIGHT = 2.0
"""A sample of the last batch that weighs this many times the others makes the tail harmful."""
HARMFUL_SHARE = 0.05
"""Samples repeated, left out or idle devices from this share on are worth a change."""

NO, SAID, HARM = 0, 1, 2
"""What a rule answers: not met, met without much harm, harmful."""


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
    return tuple(one for one in RULES if one.applies(pipeline))


def smallest_part(layout: Layout) -> int:
    """Samples of the rank that has the fewest in the last step, those without any left out."""
    return min(filter(None, layout.last), default=0)


def _harm(bad: bool) -> int:
    return HARM if bad else SAID


def _always(pipeline: Pipeline) -> bool:
    del pipeline
    return True


def _setup(*setups: str) -> Callable[[Pipeline], bool]:
    return lambda pipeline: pipeline.setup in setups


def _torch(pipeline: Pipeline) -> bool:
    return pipeline.setup not in KERAS


def _count(value: int | None) -> int:
    return value or 0


def made(layout: Layout) -> tuple[tuple[int, ...], ...]:
    """The kinds of steps that an epoch really makes: full ones, and the last if it differs."""
    most = max(layout.batches)
    if most > 1 or (most and not layout.is_short):
        return (layout.full, layout.last) if layout.last != layout.full else (layout.full,)
    return (layout.last,) if most else ()


def _after_others(layout: Layout) -> bool:
    """Whether a short last step follows full ones."""
    return layout.is_short and max(layout.batches) > 1


def _short(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return _harm(layout.weight > HARMFUL_WEIGHT) if _after_others(layout) else NO


def _weighs_batches(pipeline: Pipeline) -> bool:
    """Whether each batch counts alike: where they evaluate, frameworks weigh it by its samples."""
    if pipeline.stage == "validate":
        return pipeline.setup not in (*KERAS, "lightning", "trainer")
    return pipeline.stage == "train"


def _trains(pipeline: Pipeline) -> bool:
    """Whether batch statistics and gradients are made: validation runs in eval()."""
    return pipeline.stage == "train"


def _contrasted(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    if not _after_others(layout):
        return NO
    return _harm(layout.weight > HARMFUL_WEIGHT or smallest_part(layout) == 1)


def _below_one_batch(pipeline: Pipeline, layout: Layout) -> int:
    return SAID if layout.steps and (pipeline.num_samples or 0) < layout.full_samples else NO


def _no_steps(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return NO if layout.steps else HARM


def _worker_tails(pipeline: Pipeline, layout: Layout) -> int:
    lost = layout.dropped > HARMFUL_SHARE * (pipeline.num_samples or 1)
    small = any(one * HARMFUL_WEIGHT < layout.full[0] for one in layout.short)
    return _harm(lost or small) if len(layout.short) > 1 or layout.dropped else NO


def _has_torch_norm(pipeline: Pipeline) -> bool:
    model = pipeline.model
    local = _count(model.batch_norm) + _count(model.group_norm) + _count(model.instance_norm)
    return _torch(pipeline) and local > 0


def _one_value(pipeline: Pipeline, layout: Layout) -> int:
    model = pipeline.model
    if _count(model.instance_norm) and model.instance_norm_values == 1 and layout.steps:
        return HARM
    least = smallest_part(layout)
    if least != 1:
        return NO
    if _trains(pipeline) and _count(model.batch_norm) and model.batch_norm_values in (None, 1):
        return HARM
    return HARM if _count(model.group_norm) and model.group_norm_values == 1 else NO


def _few_samples(pipeline: Pipeline, layout: Layout) -> int:
    least = smallest_part(layout)
    if not least or (least == 1 and pipeline.model.batch_norm_values in (None, 1)):
        return NO  # that is an error, and norm.one-value says so
    size = max(layout.full)
    few = least < max(SMALL_BATCH_NORM, size / 8) and least < size
    return HARM if few and max(layout.batches) > 1 else NO


def _empty_batch(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return HARM if 0 in layout.last and len(set(layout.batches)) == 1 else NO


def _duplicates(pipeline: Pipeline, layout: Layout) -> int:
    if not layout.duplicates:
        return NO
    return _harm(layout.duplicates > HARMFUL_SHARE * (pipeline.num_samples or 1))


def _evened(pipeline: Pipeline, layout: Layout) -> int:
    """The Trainer leaves repeated samples out of what it evaluates and predicts."""
    degree = _duplicates(pipeline, layout)
    return min(degree, SAID) if pipeline.setup == "trainer" and not _trains(pipeline) else degree


def _no_samples(pipeline: Pipeline, layout: Layout) -> int:
    del layout
    return HARM if (pipeline.num_samples or 0) < pipeline.num_ranks else NO


def _met(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return HARM if layout.steps else NO


def _uneven_steps(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return HARM if layout.batches[0] != layout.batches[-1] else NO


def _joined(pipeline: Pipeline, layout: Layout) -> int:
    if pipeline.divide_by_initial_world_size or _count(pipeline.model.sync_batch_norm):
        return _uneven_steps(pipeline, layout)
    return NO


def _uneven_sizes(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return _harm(True) if any(_differ(sizes) for sizes in made(layout)) else NO


def _differ(sizes: tuple[int, ...]) -> bool:
    """Whether ranks that have samples have different numbers of them."""
    if not sizes or sizes.count(sizes[0]) == len(sizes):
        return False
    return len({one for one in sizes if one}) > 1


def _sync_short(pipeline: Pipeline, layout: Layout) -> int:
    if layout.last_samples == 1 and (pipeline.model.batch_norm_values or 1) == 1:
        return HARM
    return SAID if pipeline.num_ranks > 1 and layout.last and min(layout.last) < 2 else NO


def _chunks(pipeline: Pipeline, layout: Layout) -> int:
    steps = made(layout)
    if any(0 in sizes for sizes in steps):
        return HARM
    if all(sizes[0] == sizes[-1] for sizes in steps):
        return NO
    return _harm(pipeline.model.loss_in_forward)


def _uneven_deal(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return HARM if layout.last and layout.last[0] != layout.last[-1] else NO


def _gathered(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return HARM if layout.duplicates else NO


def _accumulation(pipeline: Pipeline, layout: Layout) -> int:
    tail = layout.accumulation_tail
    return _harm(pipeline.micro_batches > HARMFUL_WEIGHT * tail) if tail else NO


def _lightning(pipeline: Pipeline, layout: Layout) -> int:
    if pipeline.stage == "train":
        return SAID if layout.steps else NO
    return HARM if layout.duplicates else NO


def _dropped(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return HARM if layout.dropped else NO


def _keras_one(pipeline: Pipeline, layout: Layout) -> int:
    values = pipeline.model.batch_norm_values
    return HARM if smallest_part(layout) == 1 and values in (None, 1) else NO


def _empty_replica(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return HARM if _after_others(layout) and 0 in layout.last else NO


def _first_batch(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    steps = made(layout)
    return HARM if steps and steps[0][0] != steps[0][-1] else NO


def _indivisible(pipeline: Pipeline, layout: Layout) -> int:
    ranks = pipeline.num_ranks
    # In an epoch of a single step nothing but that step is placed.
    several = max(layout.batches) > 1
    return HARM if layout.last_samples % ranks or (several and layout.full_samples % ranks) else NO


def _new_shape(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return SAID if _after_others(layout) else NO


def _compiled(pipeline: Pipeline) -> bool:
    return pipeline.model.compiled in ("default", "static")


RULES: tuple[Rule, ...] = (
    Rule(
        "loader.short",
        lambda one: one.model.loss == "mean" and _weighs_batches(one) and not dispatches(one),
        _short,
    ),
    Rule("loader.below-one-batch", _always, _below_one_batch),
    Rule(
        "loss.contrastive",
        lambda one: one.model.loss == "contrastive" and one.stage != "predict",
        _contrasted,
    ),
    Rule("loader.no-steps", _always, _no_steps),
    Rule(
        "iterable.worker-tails",
        lambda one: one.iterable and one.num_workers > 1 and one.setup == "dataloader",
        _worker_tails,
    ),
    Rule("norm.one-value", _has_torch_norm, _one_value),
    Rule(
        "norm.few-samples",
        lambda one: _torch(one) and _trains(one) and _count(one.model.batch_norm) > 0,
        _few_samples,
    ),
    Rule(
        "loss.empty-batch",
        lambda one: (
            one.num_ranks > 1
            and one.model.loss != "sum"
            and (bool(one.rank_batch_sizes) or one.setup in ACCELERATE)
        ),
        _empty_batch,
    ),
    Rule(
        "distributed.duplicates",
        lambda one: (
            one.setup in (*DDP, "lightning")
            and one.num_ranks > 1
            and not one.rank_batch_sizes
            and sampler_of(one) == "distributed"
        ),
        _duplicates,
    ),
    Rule(
        "distributed.no-samples",
        lambda one: one.sampler_drop_last or (one.setup == "lightning" and one.stage == "predict"),
        _no_samples,
    ),
    Rule(
        "ddp.no-sampler",
        lambda one: (
            one.setup in (*DDP, "lightning")
            and one.num_ranks > 1
            and not one.rank_batch_sizes
            and sampler_of(one) == "plain"
        ),
        _met,
    ),
    Rule(
        "ddp.uneven-steps",
        lambda one: (
            one.setup in ("ddp", "distributed-sampler")
            or (one.setup == "lightning" and one.stage != "predict")
        ),
        _uneven_steps,
    ),
    Rule("join.divisor", _setup("join"), _joined),
    Rule(
        "ddp.uneven-sizes",
        lambda one: (
            one.num_ranks > 1
            and one.model.loss != "sum"
            and (one.setup in DDP or (one.setup == "accelerate" and one.stage == "train"))
        ),
        _uneven_sizes,
    ),
    Rule(
        "syncbn.short-rank",
        lambda one: _torch(one) and _trains(one) and _count(one.model.sync_batch_norm) > 0,
        _sync_short,
    ),
    Rule("dataparallel.chunks", _setup("data-parallel"), _chunks),
    Rule(
        "accelerate.even-batches",
        lambda one: one.setup in ACCELERATE and one.num_ranks > 1,
        _evened,
    ),
    Rule(
        "accelerate.uneven",
        lambda one: one.setup in ACCELERATE and not one.even_batches and not dispatches(one),
        _uneven_deal,
    ),
    Rule(
        "accelerate.dispatch",
        lambda one: one.setup in ACCELERATE and dispatches(one),
        _short,
    ),
    Rule(
        "accelerate.gather-for-metrics",
        lambda one: (
            one.setup in ACCELERATE
            and one.stage != "train"
            and one.iterable
            and not dispatches(one)
        ),
        _gathered,
    ),
    Rule(
        "accumulation.tail",
        lambda one: (
            one.micro_batches > 1
            and not one.mean_over_accumulated
            and one.stage == "train"
            and one.setup != "trainer"
            and one.setup not in KERAS
        ),
        _accumulation,
    ),
    Rule(
        "lightning.sampler",
        lambda one: (
            one.setup == "lightning"
            and one.num_ranks > 1
            and one.sampler is None
            and not one.sampler_drop_last
            and sampler_of(one) == "distributed"
        ),
        _lightning,
    ),
    Rule(
        "trainer.drop-last",
        lambda one: one.setup == "trainer" and one.drop_last and one.stage != "train",
        _dropped,
    ),
    Rule(
        "keras.one-sample",
        lambda one: one.setup in KERAS and _trains(one) and _count(one.model.batch_norm) > 0,
        _keras_one,
    ),
    Rule(
        "mirrored.empty-replica-nan",
        lambda one: one.setup == "mirrored" and _trains(one) and _count(one.model.batch_norm) > 0,
        _empty_replica,
    ),
    Rule(
        "mirrored.empty-replica-scale",
        lambda one: one.setup == "mirrored" and _trains(one) and not _count(one.model.batch_norm),
        _empty_replica,
    ),
    Rule("mirrored.first-batch", _setup("mirrored"), _first_batch),
    Rule("jax.indivisible", lambda one: one.setup == "jax" and one.num_ranks > 1, _indivisible),
    Rule("compiled.shape", _compiled, _new_shape),
)
"""`accelerate.split`, `multiworker.fit` and `keras-torch.distribution` have no layout: see
`pipeline.refuse`.
"""
