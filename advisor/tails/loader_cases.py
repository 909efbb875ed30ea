"""Cases that one process can meet in its loader, its norm layers and its loss."""

from __future__ import annotations

from ...records import Evidence, Layout, ModelFacts, Pipeline
from ...units import format_count, format_runs
from .case import Said, TailCase, counted, example, example_of_ranks, of_all, say
from .conditions import (
    HARM,
    HARMFUL_SHARE,
    HARMFUL_WEIGHT,
    MET,
    NO,
    SMALL_BATCH_NORM,
    after_others,
    count,
    harm,
    num_shares,
    of_torch,
    short,
    shortened,
    smallest_made,
    smallest_part,
    trains,
)
from .pipeline import ACCELERATE_SETUPS, KERAS, dispatches

BATCH_NORM = ModelFacts(batch_norm=1, batch_norm_values=1)


def _weighs_batches(pipeline: Pipeline) -> bool:
    """Whether each batch counts alike: where they evaluate, frameworks weigh it by its samples."""
    if pipeline.stage == "validate":
        return pipeline.setup not in (*KERAS, "lightning", "trainer")
    return pipeline.stage == "train"


def _say_short(pipeline: Pipeline, layout: Layout) -> Said:
    placed = pipeline.num_ranks > 1 and layout.last
    each = f" ({format_runs(layout.last)} by rank)" if placed else ""
    weigh = "weighs" if layout.last_samples == 1 else "weigh"
    return say(
        f"the {counted(layout.last_samples)} of the epoch's last step{each} {weigh} "
        f"{layout.weight:.1f} times the others under a mean loss",
        Evidence(metric="weight of a sample", value=layout.weight, threshold=HARMFUL_WEIGHT),
    )


LOADER_SHORT = TailCase(
    number=1,
    id="loader.short",
    severity="bias",
    title="The last batch is short",
    what=(
        "N samples in batches of B leave L = N % B for the last step. Under a mean loss each of "
        "them weighs B/L times the others, and the variance of that step's gradient is B/L times "
        "as large. N = kB + 1 is the worst: a single sample moves the model like a full batch."
    ),
    advice=(
        "Drop it (with shuffling other samples are left out each time), repeat samples to fill "
        "it, or take a size that divides N or leaves at least half a batch. Scaling the loss by "
        "L/B is exact for SGD, with and without momentum; Adam divides the scale out again."
    ),
    remedies=("drop", "fill", "size", "scale", "weigh"),
    applies=lambda pipeline: (
        pipeline.model.loss == "mean" and _weighs_batches(pipeline) and not dispatches(pipeline)
    ),
    fires=short,
    says=_say_short,
    example=example(50_000, 503, model=ModelFacts(optimizer="SGD")),
)


def _below_one_batch(pipeline: Pipeline, layout: Layout) -> int:
    if not layout.steps or (pipeline.num_samples or 0) >= layout.full_samples:
        return NO
    # Where every rank draws all samples, they may be several batches of each.
    return MET if max(layout.batches) == 1 or num_shares(pipeline) > 1 else NO


def _say_below_one_batch(pipeline: Pipeline, layout: Layout) -> Said:
    samples = pipeline.num_samples or 0
    all_ranks = "" if pipeline.num_ranks == 1 else " over all ranks"
    several = f" ({format_runs(layout.last)} by rank)" if len(layout.last) > 1 else ""
    every = "all " if not layout.duplicates else ""
    epoch = f"one step of {every}{counted(layout.last_samples)}{several}"
    if max(layout.batches) > 1:
        epoch = f"{max(layout.batches)} batches of {format_runs(layout.short)} samples"
    return say(
        f"a full batch is {counted(layout.full_samples)}{all_ranks}, more than the data set has: "
        f"an epoch is {epoch}; a smaller batch says what is really trained",
        Evidence(metric="samples", value=samples, threshold=layout.full_samples),
    )


LOADER_BELOW_ONE_BATCH = TailCase(
    number=31,
    id="loader.below-one-batch",
    severity="waste",
    title="All samples are fewer than one batch",
    what=(
        "With N below one batch of all ranks an epoch is a single step that never has the batch "
        "size that was asked for; samplers that pad repeat samples to fill it, and with "
        "drop_last=True there is no step at all (loader.no-steps)."
    ),
    advice="Take a batch size that the data can fill, or fewer ranks.",
    remedies=("smaller", "ranks"),
    fires=_below_one_batch,
    says=_say_below_one_batch,
    example=example_of_ranks(100, 64, "ddp"),
)


def _contrasted(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    if not after_others(layout) or shortened(layout) is None:
        return NO
    return harm(layout.weight > HARMFUL_WEIGHT or smallest_part(layout) == 1)


def _others(count: int) -> str:
    """How many more there are beside one."""
    return format_count(count - 1)


def _say_contrasted(pipeline: Pipeline, layout: Layout) -> Said:
    del pipeline
    few, many = shortened(layout) or (0, 0)
    return say(
        f"the last batch compares {counted(few)} with each other where a full one compares "
        f"{format_count(many)}: each has {_others(few)} negatives and not {_others(many)}",
        Evidence(metric="weight of a sample", value=layout.weight, threshold=HARMFUL_WEIGHT),
    )


LOSS_CONTRASTIVE = TailCase(
    number=32,
    id="loss.contrastive",
    severity="bias",
    title="A contrastive loss has fewer samples to compare in a short batch",
    what=(
        "A loss such as InfoNCE compares each sample with the others of its batch: L samples have "
        "L - 1 negatives and not B - 1, which makes their task easier and its loss smaller "
        "(log L and not log B where nothing is learned yet), and one sample alone has a loss and a "
        "gradient of 0. A sample that is repeated to fill the batch is a false negative of itself."
    ),
    advice="Drop the short batch, or take a size that leaves none.",
    remedies=("drop", "size"),
    applies=lambda pipeline: pipeline.model.loss == "contrastive" and pipeline.stage != "predict",
    fires=_contrasted,
    says=_say_contrasted,
    example=example(1028, 64, model=ModelFacts(loss="contrastive")),
)


def _no_steps(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return NO if layout.steps else HARM


def _say_no_steps(pipeline: Pipeline, layout: Layout) -> Said:
    samples = pipeline.num_samples or 0
    wanted = layout.full_samples
    whose = "" if pipeline.num_ranks == 1 else " over all ranks"
    shares = num_shares(pipeline)
    if not (pipeline.drop_last or pipeline.sampler_drop_last):
        return say(
            f"{counted(samples)} for {pipeline.num_ranks} ranks, all of which stop with the first "
            "that has none left: no step is made",
            Evidence(metric="samples", value=samples, threshold=pipeline.num_ranks),
        )
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


LOADER_NO_STEPS = TailCase(
    number=2,
    id="loader.no-steps",
    severity="error",
    title="An epoch makes no step",
    what=(
        "With drop_last=True and fewer samples than one batch, len(loader) is 0: the training "
        "loop runs through without a step and without an error."
    ),
    advice="Take a batch size that the data of one rank, or one data worker, can fill.",
    remedies=("smaller", "ranks", "shards"),
    fires=_no_steps,
    says=_say_no_steps,
    example=example(100, 128, drop_last=True),
)


def _worker_tails(pipeline: Pipeline, layout: Layout) -> int:
    lost = layout.dropped > HARMFUL_SHARE * (pipeline.num_samples or 1)
    small = any(length * HARMFUL_WEIGHT < layout.full[0] for length in layout.short)
    return harm(lost or small) if len(layout.short) > 1 or layout.dropped else NO


def _say_worker_tails(pipeline: Pipeline, layout: Layout) -> Said:
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


ITERABLE_WORKER_TAILS = TailCase(
    number=3,
    id="iterable.worker-tails",
    severity="waste",
    title="Every data worker makes a tail of its own",
    what=(
        "An iterable dataset is cut into batches inside each worker, so W workers leave up to W "
        "short batches; drop_last=True drops one in each worker. Ten samples, B = 4, W = 3: sizes "
        "4, 3, 3, of which drop_last keeps the first."
    ),
    advice=(
        "Make the share of each worker a multiple of the batch size, or use one worker for small "
        "data."
    ),
    remedies=("shards", "size"),
    applies=lambda pipeline: num_shares(pipeline) > 1,
    fires=_worker_tails,
    says=_say_worker_tails,
    example=example(1010, 60, iterable=True, num_workers=2),
)


def _has_torch_norm(pipeline: Pipeline) -> bool:
    model = pipeline.model
    local = count(model.batch_norm) + count(model.group_norm) + count(model.instance_norm)
    return of_torch(pipeline) and local > 0


def _batch_norm_raises(pipeline: Pipeline) -> bool:
    """Whether BatchNorm refuses one sample."""
    model = pipeline.model
    return trains(pipeline) and count(model.batch_norm) > 0 and model.batch_norm_values in (None, 1)


def _one_value(pipeline: Pipeline, layout: Layout) -> int:
    model = pipeline.model
    if count(model.instance_norm) and model.instance_norm_values == 1 and layout.steps:
        return HARM
    if smallest_made(layout) != 1:
        return NO
    if _batch_norm_raises(pipeline):
        return HARM
    return HARM if count(model.group_norm) and model.group_norm_values == 1 else NO


def _say_one_value(pipeline: Pipeline, layout: Layout) -> Said:
    model = pipeline.model
    if model.instance_norm and model.instance_norm_values == 1:
        return say(
            "an InstanceNorm layer sees one value per channel and raises ValueError at any batch "
            "size",
            Evidence(metric="values per channel", value=1, threshold=2),
        )
    who = "the last batch" if pipeline.num_ranks == 1 else "a rank's last batch"
    if smallest_part(layout) != 1:
        who = "a rank's part of a full batch"
    kind = "GroupNorm over one value per group raises ValueError"
    if _batch_norm_raises(pipeline):
        kind = "BatchNorm over one value per channel raises ValueError"
        kind += " where its maps are 1x1" if model.batch_norm_values is None else ""
    return say(
        f"{who} holds one sample; {kind}",
        Evidence(metric="samples of the smallest rank", value=1, threshold=2),
    )


NORM_ONE_VALUE = TailCase(
    number=4,
    id="norm.one-value",
    severity="error",
    title="A normalisation layer sees one value per channel",
    what=(
        "torch's BatchNorm raises ValueError 'Expected more than 1 value per channel when "
        "training' when samples x height x width is 1: a last batch of one sample ends the run at "
        "the end of the first epoch. Maps larger than 1x1 are fine, eval() is. GroupNorm with one "
        "value per group raises likewise, InstanceNorm on 1x1 maps at every batch size; "
        "LayerNorm never does."
    ),
    advice="Drop the short batch, or take a size with N % B not 1.",
    remedies=("drop", "fill", "size", "norm", "frozen", "sync", "groups", "spatial"),
    applies=_has_torch_norm,
    fires=_one_value,
    says=_say_one_value,
    example=example(1025, 64, model=BATCH_NORM),
)


def _few_samples(pipeline: Pipeline, layout: Layout) -> int:
    least = smallest_part(layout)
    if not least or (least == 1 and pipeline.model.batch_norm_values in (None, 1)):
        return NO  # that is an error, and norm.one-value says so
    size = max(layout.full)
    few = least < max(SMALL_BATCH_NORM, size / 8) and least < size
    return HARM if few and max(layout.batches) > 1 else NO


def _say_few_samples(pipeline: Pipeline, layout: Layout) -> Said:
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


NORM_FEW_SAMPLES = TailCase(
    number=5,
    id="norm.few-samples",
    severity="bias",
    title="BatchNorm's statistics come from a few samples",
    what=(
        "With 2 to about 8 samples BatchNorm raises nothing; its running statistics move towards "
        "those of the few samples once an epoch, by momentum (0.1) of the difference."
    ),
    advice="Drop the short batch, or normalise without batch statistics.",
    remedies=("drop", "fill", "size", "norm"),
    applies=lambda pipeline: (
        of_torch(pipeline) and trains(pipeline) and count(pipeline.model.batch_norm) > 0
    ),
    fires=_few_samples,
    says=_say_few_samples,
    example=example(1029, 64, model=BATCH_NORM),
)


def _empty_batch(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return HARM if 0 in layout.last and len(set(layout.batches)) == 1 else NO


def _say_empty_batch(pipeline: Pipeline, layout: Layout) -> Said:
    del pipeline
    none = layout.empty_replicas
    return say(
        f"in the last step ({format_runs(layout.last)} by rank) {none} of {len(layout.last)} ranks "
        "have no sample: their mean loss is NaN",
        Evidence(metric="ranks without a sample", value=none, threshold=0),
    )


LOSS_EMPTY_BATCH = TailCase(
    number=6,
    id="loss.empty-batch",
    severity="nan",
    title="A rank gets no sample in the last step",
    what=(
        "A batch of 0 rows passes Linear, Conv, LSTM, attention and BatchNorm (its statistics "
        "stay as they are, gradients are 0), but the mean over no rows is NaN: the loss that is "
        "logged, and every sum that it enters."
    ),
    advice="Divide the sum of the loss by max(1, n).",
    remedies=("sum", "drop"),
    applies=lambda pipeline: (
        pipeline.num_ranks > 1
        and pipeline.model.loss != "sum"
        and (bool(pipeline.rank_batch_sizes) or pipeline.setup in ACCELERATE_SETUPS)
    ),
    fires=_empty_batch,
    says=_say_empty_batch,
    example=example(1029, 64, setup="ddp", num_ranks=2, rank_batch_sizes=(48, 16)),
)


LOADER_CASES: tuple[TailCase, ...] = (
    LOADER_SHORT,
    LOADER_BELOW_ONE_BATCH,
    LOSS_CONTRASTIVE,
    LOADER_NO_STEPS,
    ITERABLE_WORKER_TAILS,
    NORM_ONE_VALUE,
    NORM_FEW_SAMPLES,
    LOSS_EMPTY_BATCH,
)
