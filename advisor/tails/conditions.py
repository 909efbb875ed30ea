"""When a layout meets a case: arithmetic only, and quick, for sweeps over thousands of sizes."""

from __future__ import annotations

from ...records import Layout, Pipeline

SMALL_BATCH_NORM = 8
"""Below this, batch statistics are noisy (Wu and He 2018, arXiv 1803.08494, figure 1)."""
HARMFUL_WEIGHT = 2.0
"""A sample of the last batch that weighs this many times the others makes the tail harmful."""
HARMFUL_SHARE = 0.05
"""Samples repeated, left out or idle devices from this share on are worth a change."""

NO, SAID, HARM = 0, 1, 2
"""What a rule answers: not met, met without much harm, harmful."""


def smallest_part(layout: Layout) -> int:
    """Samples of the rank that has the fewest in the last step, those without any left out."""
    return min(filter(None, layout.last), default=0)


def num_shares(pipeline: Pipeline) -> int:
    """Data workers of one process that each cut batches of their own share of a stream."""
    shares = pipeline.iterable and pipeline.setup == "dataloader"
    return max(1, pipeline.num_workers) if shares else 1


def harm(bad: bool) -> int:
    return HARM if bad else SAID


def count(value: int | None) -> int:
    return value or 0


def made(layout: Layout) -> tuple[tuple[int, ...], ...]:
    """The kinds of steps that an epoch really makes: full ones, and the last if it differs."""
    most = max(layout.batches)
    if most > 1 or (most and not layout.is_short):
        return (layout.full, layout.last) if layout.last != layout.full else (layout.full,)
    return (layout.last,) if most else ()


def after_others(layout: Layout) -> bool:
    """Whether a short last step follows full ones."""
    return layout.is_short and max(layout.batches) > 1


def short(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return harm(layout.weight > HARMFUL_WEIGHT) if after_others(layout) else NO


def trains(pipeline: Pipeline) -> bool:
    """Whether batch statistics and gradients are made: validation runs in eval()."""
    return pipeline.stage == "train"


def contrasted(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    if not after_others(layout):
        return NO
    return harm(layout.weight > HARMFUL_WEIGHT or smallest_part(layout) == 1)


def below_one_batch(pipeline: Pipeline, layout: Layout) -> int:
    return SAID if layout.steps and (pipeline.num_samples or 0) < layout.full_samples else NO


def no_steps(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return NO if layout.steps else HARM


def worker_tails(pipeline: Pipeline, layout: Layout) -> int:
    lost = layout.dropped > HARMFUL_SHARE * (pipeline.num_samples or 1)
    small = any(length * HARMFUL_WEIGHT < layout.full[0] for length in layout.short)
    return harm(lost or small) if len(layout.short) > 1 or layout.dropped else NO


def one_value(pipeline: Pipeline, layout: Layout) -> int:
    model = pipeline.model
    if count(model.instance_norm) and model.instance_norm_values == 1 and layout.steps:
        return HARM
    least = smallest_part(layout)
    if least != 1:
        return NO
    if trains(pipeline) and count(model.batch_norm) and model.batch_norm_values in (None, 1):
        return HARM
    return HARM if count(model.group_norm) and model.group_norm_values == 1 else NO


def few_samples(pipeline: Pipeline, layout: Layout) -> int:
    least = smallest_part(layout)
    if not least or (least == 1 and pipeline.model.batch_norm_values in (None, 1)):
        return NO  # that is an error, and norm.one-value says so
    size = max(layout.full)
    few = least < max(SMALL_BATCH_NORM, size / 8) and least < size
    return HARM if few and max(layout.batches) > 1 else NO


def turned_down(pipeline: Pipeline, layout: Layout) -> int:
    return HARM if untaken(pipeline, layout) is not None else NO


def untaken(pipeline: Pipeline, layout: Layout) -> int | None:
    """Samples of a step, on a rank, that the model does not take; `None` where it takes all."""
    step, up_to = pipeline.model.multiple_of, pipeline.model.any_up_to_multiple
    return next(
        (
            size
            for sizes in made(layout)
            for size in sizes
            if size % step and not (up_to and size <= step)
        ),
        None,
    )


def empty_batch(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return HARM if 0 in layout.last and len(set(layout.batches)) == 1 else NO


def duplicates(pipeline: Pipeline, layout: Layout) -> int:
    if not layout.duplicates:
        return NO
    return harm(layout.duplicates > HARMFUL_SHARE * (pipeline.num_samples or 1))


def evened(pipeline: Pipeline, layout: Layout) -> int:
    """The Trainer leaves repeated samples out of what it evaluates and predicts."""
    degree = duplicates(pipeline, layout)
    return min(degree, SAID) if pipeline.setup == "trainer" and not trains(pipeline) else degree


def no_samples(pipeline: Pipeline, layout: Layout) -> int:
    del layout
    return HARM if (pipeline.num_samples or 0) < pipeline.num_ranks else NO


def met(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return HARM if layout.steps else NO


def uneven_steps(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return HARM if layout.batches[0] != layout.batches[-1] else NO


def joined(pipeline: Pipeline, layout: Layout) -> int:
    if pipeline.divide_by_initial_world_size or count(pipeline.model.sync_batch_norm):
        return uneven_steps(pipeline, layout)
    return NO


def uneven_sizes(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return harm(True) if any(differ(sizes) for sizes in made(layout)) else NO


def differ(sizes: tuple[int, ...]) -> bool:
    """Whether ranks that have samples have different numbers of them."""
    if not sizes or sizes.count(sizes[0]) == len(sizes):
        return False
    return len({size for size in sizes if size}) > 1


def sync_short(pipeline: Pipeline, layout: Layout) -> int:
    if layout.last_samples == 1 and (pipeline.model.batch_norm_values or 1) == 1:
        return HARM
    return SAID if pipeline.num_ranks > 1 and layout.last and min(layout.last) < 2 else NO


def chunks(pipeline: Pipeline, layout: Layout) -> int:
    steps = made(layout)
    if any(0 in sizes for sizes in steps):
        return HARM
    if all(sizes[0] == sizes[-1] for sizes in steps):
        return NO
    return harm(pipeline.model.loss_in_forward)


def uneven_deal(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return HARM if layout.last and layout.last[0] != layout.last[-1] else NO


def gathered(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return HARM if layout.duplicates else NO


def accumulation(pipeline: Pipeline, layout: Layout) -> int:
    tail = layout.accumulation_tail
    return harm(pipeline.micro_batches > HARMFUL_WEIGHT * tail) if tail else NO


def lightning(pipeline: Pipeline, layout: Layout) -> int:
    if pipeline.stage == "train":
        return SAID if layout.steps else NO
    return HARM if layout.duplicates else NO


def dropped(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return HARM if layout.dropped else NO


def keras_one(pipeline: Pipeline, layout: Layout) -> int:
    values = pipeline.model.batch_norm_values
    return HARM if smallest_part(layout) == 1 and values in (None, 1) else NO


def empty_replica(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return HARM if after_others(layout) and 0 in layout.last else NO


def first_batch(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    steps = made(layout)
    return HARM if steps and steps[0][0] != steps[0][-1] else NO


def indivisible(pipeline: Pipeline, layout: Layout) -> int:
    ranks = pipeline.num_ranks
    # In an epoch of a single step nothing but that step is placed.
    several = max(layout.batches) > 1
    return HARM if layout.last_samples % ranks or (several and layout.full_samples % ranks) else NO


def new_shape(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return SAID if after_others(layout) else NO
