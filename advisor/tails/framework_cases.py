"""Cases around the loader: accumulation, trainers, backends, the compiler, the model."""

from __future__ import annotations

from ...records import Evidence, Layout, ModelFacts, Pipeline
from ...units import format_count, format_runs
from .case import Said, TailCase, counted, example, example_of_ranks, of_all, say
from .conditions import (
    HARM,
    HARMFUL_WEIGHT,
    MET,
    NO,
    after_others,
    count,
    harm,
    made,
    shortened,
    smallest_part,
    trains,
)
from .pipeline import KERAS, sampler_of

BATCH_NORM = ModelFacts(batch_norm=1, batch_norm_values=1)


def _accumulation(pipeline: Pipeline, layout: Layout) -> int:
    tail = layout.accumulation_tail
    return harm(pipeline.micro_batches > HARMFUL_WEIGHT * tail) if tail else NO


def _say_accumulation(pipeline: Pipeline, layout: Layout) -> Said:
    tail, whole = layout.accumulation_tail, pipeline.micro_batches
    share = tail / whole
    own = pipeline.setup in ("accelerate", "lightning")
    how = f"divided by {whole}, as this setup does," if own else f"where a loop divides by {whole}"
    return say(
        f"the last optimizer step accumulates {tail} of {whole} micro-batches; {how} its gradient "
        f"is {share:.3g} of the usual",
        Evidence(metric="share of the gradient", value=share, threshold=1),
    )


ACCUMULATION_TAIL = TailCase(
    number=20,
    id="accumulation.tail",
    severity="bias",
    title="The last optimizer step accumulates fewer micro-batches",
    what=(
        "Accelerate's accumulate and Lightning divide by the accumulation A always: k < A "
        "micro-batches at the epoch's end give k/A of a step, as a loop with loss / A does. "
        "Hugging Face's Trainer divides by what was really accumulated."
    ),
    advice="Make the number of micro-batches a multiple of A, or rescale by A/k.",
    remedies=("accumulation", "drop", "size"),
    applies=lambda pipeline: (
        pipeline.micro_batches > 1
        and not pipeline.mean_over_accumulated
        and pipeline.stage == "train"
        and pipeline.setup != "trainer"
        and pipeline.setup not in KERAS
    ),
    fires=_accumulation,
    says=_say_accumulation,
    example=example(1020, 60, micro_batches=4),
)


def _lightning(pipeline: Pipeline, layout: Layout) -> int:
    if pipeline.stage == "train":
        return MET if layout.steps else NO
    return HARM if layout.duplicates else NO


def _say_lightning(pipeline: Pipeline, layout: Layout) -> Said:
    if pipeline.stage == "train":
        return "Lightning's own DistributedSampler shuffles, even with shuffle=False", ()
    return say(
        f"{counted(layout.duplicates)} validated twice; a mean over batches is not the mean "
        "over samples",
        Evidence(metric="repeated samples", value=layout.duplicates, threshold=0),
    )


LIGHTNING_SAMPLER = TailCase(
    number=21,
    id="lightning.sampler",
    severity="bias",
    title="Lightning puts a DistributedSampler in",
    what=(
        "With several devices, use_distributed_sampler=True replaces the sampler: training is "
        "shuffled even with shuffle=False, and validation repeats samples to make ranks equal, "
        "so that the mean of 0..8 came out as 3.6 and not 4.0 (9 samples, B = 4, two ranks). "
        "Prediction repeats nothing, and ignores drop_last=True: all samples are predicted."
    ),
    advice="Validate on one device, or with metrics that count samples.",
    remedies=("validate", "drop"),
    applies=lambda pipeline: (
        pipeline.setup == "lightning"
        and pipeline.num_ranks > 1
        and pipeline.sampler is None
        and not pipeline.sampler_drop_last
        and sampler_of(pipeline) == "distributed"
    ),
    fires=_lightning,
    says=_say_lightning,
    example=example_of_ranks(1030, 64, "lightning", stage="validate"),
)


def _dropped(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return HARM if layout.dropped else NO


def _say_dropped(pipeline: Pipeline, layout: Layout) -> Said:
    return say(
        f"dataloader_drop_last leaves {of_all(layout.dropped, pipeline)} without a prediction",
        Evidence(metric="dropped samples", value=layout.dropped, threshold=0),
    )


TRAINER_DROP_LAST = TailCase(
    number=22,
    id="trainer.drop-last",
    severity="waste",
    title="dataloader_drop_last drops predictions too",
    what=(
        "TrainingArguments(dataloader_drop_last=True) holds for evaluation and prediction as "
        "well: 8 predictions for 9 samples."
    ),
    advice="Drop in the training loader only.",
    remedies=("keep",),
    applies=lambda pipeline: (
        pipeline.setup == "trainer" and pipeline.drop_last and pipeline.stage != "train"
    ),
    fires=_dropped,
    says=_say_dropped,
    example=example_of_ranks(1030, 64, "trainer", drop_last=True, stage="predict"),
)


def _keras_one(pipeline: Pipeline, layout: Layout) -> int:
    values = pipeline.model.batch_norm_values
    return HARM if smallest_part(layout) == 1 and values in (None, 1) else NO


def _say_keras_one(pipeline: Pipeline, layout: Layout) -> Said:
    del layout
    where = "the last batch" if pipeline.num_ranks == 1 else "a replica's last batch"
    return say(
        f"{where} holds one sample: BatchNormalization's moving variance shrinks by its momentum, "
        "without an error",
        Evidence(metric="samples of the smallest replica", value=1, threshold=2),
    )


KERAS_ONE_SAMPLE = TailCase(
    number=23,
    id="keras.one-sample",
    severity="bias",
    title="Keras BatchNormalization on one sample, without an error",
    what=(
        "Keras 3 raises nothing for a batch of one sample: the variance is 0, and the moving "
        "variance is multiplied by the momentum (0.99 by default, 0.9 in the test) each time."
    ),
    advice="Drop the remainder.",
    remedies=("drop", "fill", "size"),
    applies=lambda pipeline: (
        pipeline.setup in KERAS and trains(pipeline) and count(pipeline.model.batch_norm) > 0
    ),
    fires=_keras_one,
    says=_say_keras_one,
    example=example(1025, 64, setup="keras-tensorflow", model=BATCH_NORM),
)


def _empty_replica(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return HARM if after_others(layout) and 0 in layout.last else NO


def _say_replica_nan(pipeline: Pipeline, layout: Layout) -> Said:
    del pipeline
    return say(
        f"the last batch is cut into {format_runs(layout.last)}: replicas without a sample "
        f"({layout.empty_replicas}) make the weights NaN after epoch 1, while its loss is finite",
        Evidence(metric="empty replicas", value=layout.empty_replicas, threshold=0),
    )


MIRRORED_EMPTY_REPLICA_NAN = TailCase(
    number=24,
    id="mirrored.empty-replica-nan",
    severity="nan",
    title="MirroredStrategy: an empty replica turns the weights into NaN",
    what=(
        "The tail is cut into chunks of ceil(L/R), as by DataParallel. Where that leaves a replica "
        "empty, BatchNormalization makes its gradients NaN: gamma, beta and the kernels before it "
        "are NaN after epoch 1, while the loss of epoch 1 looks finite. TerminateOnNaN acts an "
        "epoch late."
    ),
    advice="Drop the remainder, synchronise BatchNormalization, or take a tail above (R-1)^2.",
    remedies=("drop", "keras.sync", "fill", "size"),
    applies=lambda pipeline: (
        pipeline.setup == "mirrored" and trains(pipeline) and count(pipeline.model.batch_norm) > 0
    ),
    fires=_empty_replica,
    says=_say_replica_nan,
    example=example_of_ranks(1029, 64, "mirrored", model=BATCH_NORM),
)


def _say_replica_scale(pipeline: Pipeline, layout: Layout) -> Said:
    filled = pipeline.num_ranks - layout.empty_replicas
    share = filled / pipeline.num_ranks
    return say(
        f"the last batch is cut into {format_runs(layout.last)}: the gradient is {share:.3g} of "
        "what it should be",
        Evidence(metric="share of the gradient", value=share, threshold=1),
    )


MIRRORED_EMPTY_REPLICA_SCALE = TailCase(
    number=25,
    id="mirrored.empty-replica-scale",
    severity="bias",
    title="MirroredStrategy: empty replicas shrink the step",
    what=(
        "Without BatchNormalization nothing is NaN, but the gradient is a mean over all replicas "
        "of which some have none: it is (replicas with samples)/R of what it should be."
    ),
    advice="Drop the remainder.",
    remedies=("drop", "fill", "size"),
    applies=lambda pipeline: (
        pipeline.setup == "mirrored" and trains(pipeline) and not count(pipeline.model.batch_norm)
    ),
    fires=_empty_replica,
    says=_say_replica_scale,
    example=example_of_ranks(1029, 64, "mirrored"),
)


def _first_batch(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    steps = made(layout)
    return HARM if steps and steps[0][0] != steps[0][-1] else NO


def _say_first_batch(pipeline: Pipeline, layout: Layout) -> Said:
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


MIRRORED_FIRST_BATCH = TailCase(
    number=26,
    id="mirrored.first-batch",
    severity="error",
    title="MirroredStrategy: a first batch that is not shared evenly",
    what=(
        "If the replicas get different numbers of samples in the very first batch, fit raises "
        "InvalidArgumentError 'Inputs to operation AddN ... must have the same size and shape'."
    ),
    advice="Make the global batch a multiple of the replicas, and no larger than the data.",
    remedies=("multiple", "smaller"),
    applies=lambda pipeline: pipeline.setup == "mirrored",
    fires=_first_batch,
    says=_say_first_batch,
    example=example_of_ranks(1000, 50, "mirrored"),
)


def _indivisible(pipeline: Pipeline, layout: Layout) -> int:
    ranks = pipeline.num_ranks
    # In an epoch of a single step nothing but that step is placed.
    several = max(layout.batches) > 1
    return HARM if layout.last_samples % ranks or (several and layout.full_samples % ranks) else NO


def _say_indivisible(pipeline: Pipeline, layout: Layout) -> Said:
    ranks = pipeline.num_ranks
    if layout.full_samples % ranks and max(layout.batches) > 1:
        size, which = layout.full_samples, "a batch"
    else:
        size, which = layout.last_samples, "the last batch"
    return say(
        f"{which} of {format_count(size)} cannot be sharded over {ranks} devices: IndivisibleError",
        Evidence(metric="samples modulo devices", value=size % ranks, threshold=0),
    )


JAX_INDIVISIBLE = TailCase(
    number=28,
    id="jax.indivisible",
    severity="error",
    title="JAX: a batch that the devices do not share evenly",
    what=(
        "keras.distribution.DataParallel shards the batch axis. A tail that the devices do not "
        "divide raises IndivisibleError at the last step of the first epoch."
    ),
    advice="Drop the remainder, or take a size whose tail the devices divide.",
    remedies=("drop", "multiple", "size"),
    applies=lambda pipeline: pipeline.setup == "jax" and pipeline.num_ranks > 1,
    fires=_indivisible,
    says=_say_indivisible,
    example=example_of_ranks(1025, 64, "jax"),
)


def _compiled(pipeline: Pipeline) -> bool:
    return pipeline.model.compiled in ("default", "static") or pipeline.setup == "tpu"


def _new_shape(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return MET if after_others(layout) and shortened(layout) is not None else NO


def _say_new_shape(pipeline: Pipeline, layout: Layout) -> Said:
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


COMPILED_SHAPE = TailCase(
    number=30,
    id="compiled.shape",
    severity="slow",
    title="A short batch is a new shape to compile",
    what=(
        "torch.compile recompiles once, then for dynamic shapes; with dynamic=False, JAX and "
        "tf.function for every new tail. dynamic=True does not. CUDA graphs need fixed shapes. "
        "TPUStrategy pads a short batch, or takes static shapes only."
    ),
    advice="Drop the short batch: it also saves the compilation.",
    remedies=("drop", "dynamic"),
    applies=_compiled,
    fires=_new_shape,
    says=_say_new_shape,
    example=example(1040, 64, model=ModelFacts(compiled="default")),
)


def _untaken(pipeline: Pipeline, layout: Layout) -> int | None:
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


def _turned_down(pipeline: Pipeline, layout: Layout) -> int:
    return HARM if _untaken(pipeline, layout) is not None else NO


def _say_turned_down(pipeline: Pipeline, layout: Layout) -> Said:
    size, step = _untaken(pipeline, layout) or 0, pipeline.model.multiple_of
    which = "the last batch" if size in layout.last and layout.is_short else "a batch"
    whose = "" if pipeline.num_ranks == 1 else " of a rank"
    at_most = f"at most {step} samples or " if pipeline.model.any_up_to_multiple else ""
    return say(
        f"{which}{whose} has {counted(size)}, and the model takes {at_most}multiples of {step} "
        "only",
        Evidence(metric="samples modulo the multiple", value=size % step, threshold=0),
    )


MODEL_MULTIPLE = TailCase(
    number=33,
    id="model.multiple",
    severity="error",
    title="The model takes multiples of a number only",
    what=(
        "Code that pairs or groups the samples of a batch does not take every size: timm's Mixup "
        "asserts an even one, a layer that compares groups of 4 reshapes and takes at most 4 or a "
        "multiple of 4. A last batch of another size raises at the end of the first epoch."
    ),
    advice=(
        "Drop the short batch, or fill it: where the number of samples is no multiple, no size "
        "that is one leaves one."
    ),
    remedies=("drop", "fill", "size"),
    applies=lambda pipeline: pipeline.model.multiple_of > 1 and trains(pipeline),
    fires=_turned_down,
    says=_say_turned_down,
    example=example(1027, 64, model=ModelFacts(multiple_of=2)),
)


def _say_multi_worker(pipeline: Pipeline) -> Said:
    del pipeline
    return "Keras 3 raises ValueError in fit under MultiWorkerMirroredStrategy", ()


MULTIWORKER_FIT = TailCase(
    number=27,
    id="multiworker.fit",
    severity="error",
    title="MultiWorkerMirroredStrategy does not train with Keras 3",
    what=(
        "With two workers fit raises ValueError 'Attempt to convert a value (PerReplica...' "
        "whatever the sizes; one worker alone trains."
    ),
    advice="Use torch DDP, keras.distribution on JAX, or tf_keras.",
    remedies=("keras.other",),
    refuses=_say_multi_worker,
    example=example_of_ranks(1024, 64, "multi-worker-mirrored"),
)


def _say_keras_torch(pipeline: Pipeline) -> Said:
    ranks = pipeline.num_ranks
    return (
        f"Keras on torch has no keras.distribution: nothing spreads a step over {ranks} devices",
        (),
    )


KERAS_TORCH_DISTRIBUTION = TailCase(
    number=29,
    id="keras-torch.distribution",
    severity="error",
    title="Keras on torch has no keras.distribution",
    what=(
        "On the torch backend keras.distribution.DataParallel raises AttributeError: nothing "
        "spreads a step over devices."
    ),
    advice="Use DistributedDataParallel by hand, or Accelerate.",
    remedies=("ddp",),
    refuses=_say_keras_torch,
    example=example_of_ranks(1024, 64, "keras-torch"),
)


FRAMEWORK_CASES: tuple[TailCase, ...] = (
    ACCUMULATION_TAIL,
    LIGHTNING_SAMPLER,
    TRAINER_DROP_LAST,
    KERAS_ONE_SAMPLE,
    MIRRORED_EMPTY_REPLICA_NAN,
    MIRRORED_EMPTY_REPLICA_SCALE,
    MIRRORED_FIRST_BATCH,
    JAX_INDIVISIBLE,
    COMPILED_SHAPE,
    MODEL_MULTIPLE,
    MULTIWORKER_FIT,
    KERAS_TORCH_DISTRIBUTION,
)
