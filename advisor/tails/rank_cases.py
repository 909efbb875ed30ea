"""Cases of several ranks or devices in torch: DDP and its kind, DataParallel, Accelerate."""

from __future__ import annotations

from ...records import Evidence, Layout, ModelFacts, Pipeline
from ...units import format_count, format_runs
from .case import Said, TailCase, counted, example, example_of_ranks, of_all, say
from .conditions import (
    HARM,
    HARMFUL_BIAS,
    HARMFUL_SHARE,
    HARMFUL_WEIGHT,
    MET,
    NO,
    count,
    harm,
    made,
    of_torch,
    short,
    trains,
)
from .pipeline import ACCELERATE_SETUPS, DDP_SETUPS, dispatches, sampler_of


def _duplicates(pipeline: Pipeline, layout: Layout) -> int:
    if not layout.duplicates:
        return NO
    return harm(layout.duplicates > HARMFUL_SHARE * (pipeline.num_samples or 1))


def _say_duplicates(pipeline: Pipeline, layout: Layout) -> Said:
    samples = pipeline.num_samples or 0
    share = layout.duplicates / samples if samples else 0.0
    drawn = f"{of_all(layout.duplicates, pipeline)} are drawn again"
    counts = "metrics count them twice"
    if layout.duplicates > samples:
        whole = counted(samples)
        drawn = f"{format_count(layout.duplicates)} draws repeat the {whole} of the data set"
        counts = "metrics count each draw"
    if pipeline.setup == "trainer" and not trains(pipeline):
        counts = "the Trainer leaves them out of its results"
    return say(
        f"{drawn} so that all ranks have equal steps ({share:.1%} more work; {counts})",
        Evidence(metric="share of repeated samples", value=share, threshold=HARMFUL_SHARE),
    )


DISTRIBUTED_DUPLICATES = TailCase(
    number=7,
    id="distributed.duplicates",
    severity="waste",
    title="DistributedSampler repeats samples",
    what=(
        "Every rank gets ceil(N/R) samples; what is missing is taken from the start, so that all "
        "ranks make equally many steps of equal sizes and none hangs. N = 17 on 4 ranks: 3 "
        "samples are drawn twice. Metrics count them twice as well."
    ),
    advice="For training, drop on both levels; for metrics, count each sample once.",
    remedies=("drop", "smaller", "validate"),
    applies=lambda pipeline: (
        pipeline.setup in (*DDP_SETUPS, "lightning")
        and pipeline.num_ranks > 1
        and not pipeline.rank_batch_sizes
        and sampler_of(pipeline) == "distributed"
    ),
    fires=_duplicates,
    says=_say_duplicates,
    example=example_of_ranks(17, 4, "ddp"),
)


def _no_samples(pipeline: Pipeline, layout: Layout) -> int:
    del layout
    return HARM if (pipeline.num_samples or 0) < pipeline.num_ranks else NO


def _say_no_samples(pipeline: Pipeline, layout: Layout) -> Said:
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


DISTRIBUTED_NO_SAMPLES = TailCase(
    number=8,
    id="distributed.no-samples",
    severity="error",
    title="DistributedSampler leaves no sample for any rank",
    what=(
        "DistributedSampler(drop_last=True) with fewer samples than ranks gives 0 samples to every "
        "rank: no step and no error."
    ),
    advice="Use fewer ranks than samples.",
    remedies=("ranks", "pad"),
    applies=lambda pipeline: (
        pipeline.sampler_drop_last
        or (
            pipeline.setup == "lightning"
            and pipeline.sampler is None
            and sampler_of(pipeline) == "shards"
        )
    ),
    fires=_no_samples,
    says=_say_no_samples,
    example=example_of_ranks(3, 1, "ddp", sampler_drop_last=True),
)


def _met(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return HARM if layout.steps else NO


def _say_no_sampler(pipeline: Pipeline, layout: Layout) -> Said:
    del layout
    unless = ", unless the dataset shards itself by rank" if pipeline.iterable else ""
    return say(
        f"each of {pipeline.num_ranks} ranks draws all "
        f"{counted(pipeline.num_samples or 0)}{unless}: {pipeline.num_ranks} times the work of an "
        "epoch",
        Evidence(metric="times that each sample is drawn", value=pipeline.num_ranks, threshold=1),
    )


DDP_NO_SAMPLER = TailCase(
    number=9,
    id="ddp.no-sampler",
    severity="waste",
    title="Every rank trains on all the data",
    what=(
        "Without a DistributedSampler (Lightning: use_distributed_sampler=False) each of R ranks "
        "draws the whole data set: R times the work for one epoch."
    ),
    advice="Give the loader a DistributedSampler, or shard the iterable dataset by rank.",
    remedies=("sampler",),
    applies=lambda pipeline: (
        pipeline.setup in (*DDP_SETUPS, "lightning")
        and pipeline.num_ranks > 1
        and not pipeline.rank_batch_sizes
        and sampler_of(pipeline) == "plain"
    ),
    fires=_met,
    says=_say_no_sampler,
    example=example_of_ranks(1000, 50, "ddp", sampler="plain"),
)


def _uneven_steps(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return HARM if layout.batches[0] != layout.batches[-1] else NO


def _say_uneven_steps(pipeline: Pipeline, layout: Layout) -> Said:
    most, least = max(layout.batches), min(layout.batches)
    del pipeline
    return say(
        f"ranks make {format_count(least)} to {format_count(most)} steps: the longer ones "
        "wait in a collective that the others never enter, "
        "until the timeout or 'Connection closed by peer'",
        Evidence(metric="difference in steps", value=most - least, threshold=0),
    )


DDP_UNEVEN_STEPS = TailCase(
    number=10,
    id="ddp.uneven-steps",
    severity="error",
    title="Ranks make different numbers of steps",
    what=(
        "The rank with more batches waits in an all_reduce that the others never enter. If they "
        "have exited, gloo raises 'Connection closed by peer' (or 'reset by peer') at once; if "
        "they live, it waits for the timeout, by default 30 minutes for gloo and 10 for NCCL's "
        "watchdog."
    ),
    advice="Give every rank the same number of batches, or join the uneven ones.",
    remedies=("drop", "together", "join"),
    applies=lambda pipeline: (
        pipeline.setup in ("ddp", "distributed-sampler")
        or (pipeline.setup == "lightning" and pipeline.stage != "predict")
    ),
    fires=_uneven_steps,
    says=_say_uneven_steps,
    example=example_of_ranks(1025, 64, "ddp", sampler="shards"),
)


def _joined(pipeline: Pipeline, layout: Layout) -> int:
    if pipeline.divide_by_initial_world_size or count(pipeline.model.sync_batch_norm):
        return _uneven_steps(pipeline, layout)
    return NO


def _say_join(pipeline: Pipeline, layout: Layout) -> Said:
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


JOIN_DIVISOR = TailCase(
    number=11,
    id="join.divisor",
    severity="bias",
    title="Join divides by ranks that are done",
    what=(
        "Join keeps the collectives of the remaining ranks going. By default the sum of gradients "
        "is divided by the ranks at the start: with k of R left each step is k/R of a usual one. "
        "divide_by_initial_world_size=False divides by k: then the samples of the last steps "
        "weigh more. With SyncBatchNorm Join cannot help, its collective is in the forward pass."
    ),
    advice="Choose by what should stay: the weight of a sample (default) or the size of the step.",
    remedies=("join.divisor", "join.throw", "drop"),
    applies=lambda pipeline: pipeline.setup == "join" and trains(pipeline),
    fires=_joined,
    says=_say_join,
    example=example_of_ranks(1025, 64, "join"),
)


def _differ(sizes: tuple[int, ...]) -> bool:
    """Whether ranks that have samples have different numbers of them."""
    if not sizes or sizes.count(sizes[0]) == len(sizes):
        return False
    return len({size for size in sizes if size}) > 1


def _uneven_sizes(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    uneven = [sizes for sizes in made(layout) if _differ(sizes)]
    return harm(max(map(_most_weight, uneven)) >= HARMFUL_BIAS) if uneven else NO


def _most_weight(sizes: tuple[int, ...]) -> float:
    """How much a sample of the smallest rank weighs, over what it should."""
    return sum(sizes) / (len(sizes) * min(filter(None, sizes)))


def _say_uneven_sizes(pipeline: Pipeline, layout: Layout) -> Said:
    del pipeline
    steps = made(layout)
    whose, sizes = "a full step", steps[0]
    if len({size for size in sizes if size}) < 2 or sizes != layout.full:
        whose, sizes = "the last step", layout.last
    worst = _most_weight(sizes)
    least = sum(sizes) / (len(sizes) * max(sizes))
    return say(
        f"{whose} has {format_runs(sizes)} samples by rank and DDP averages the ranks' means: "
        f"samples weigh {least:.3g} to {worst:.3g} times what they should",
        Evidence(
            metric="weight of a sample of the smallest rank", value=worst, threshold=HARMFUL_BIAS
        ),
    )


DDP_UNEVEN_SIZES = TailCase(
    number=12,
    id="ddp.uneven-sizes",
    severity="bias",
    title="Ranks have different numbers of samples in a step",
    what=(
        "DDP averages the ranks' means, so a sample of a rank with B_i of the B samples weighs "
        "B/(R*B_i) times what it should. With 6 and 2 samples: 0.67 and 2."
    ),
    advice="Multiply the local mean loss by B_i*R/B; then the gradient is exact.",
    remedies=("global mean", "drop"),
    applies=lambda pipeline: (
        pipeline.num_ranks > 1
        and pipeline.model.loss != "sum"
        and trains(pipeline)
        and (pipeline.setup in DDP_SETUPS or pipeline.setup == "accelerate")
    ),
    fires=_uneven_sizes,
    says=_say_uneven_sizes,
    example=example(1024, 64, setup="ddp", num_ranks=2, rank_batch_sizes=(48, 16)),
)


def _sync_short(pipeline: Pipeline, layout: Layout) -> int:
    if layout.last_samples == 1 and (pipeline.model.batch_norm_values or 1) == 1:
        return HARM
    return MET if pipeline.num_ranks > 1 and layout.last and min(layout.last) < 2 else NO


def _say_sync(pipeline: Pipeline, layout: Layout) -> Said:
    if layout.last_samples == 1 and pipeline.num_ranks > 1:
        message = "the last step holds one sample over all ranks, which SyncBatchNorm lets pass"
    elif layout.last_samples == 1:
        message = "SyncBatchNorm over one value raises ValueError in a world of one rank"
        message += " where its maps are 1x1" if pipeline.model.batch_norm_values is None else ""
    else:
        message = (
            f"the last step has {format_runs(layout.last)} samples by rank; SyncBatchNorm weighs "
            "them by their counts (on GPUs; on CPU tensors it raises)"
        )
    return message, (Evidence(metric="samples of the last step", value=layout.last_samples),)


SYNCBN_SHORT_RANK = TailCase(
    number=13,
    id="syncbn.short-rank",
    severity="error",
    title="SyncBatchNorm and ranks with one sample or none",
    what=(
        "SyncBatchNorm weighs the ranks by their counts, so a rank with one sample is fine and one "
        "with none is left out. It raises for one value in a world of one rank; a single value "
        "over all ranks is not guarded. On CPU tensors it raises where a process group runs."
    ),
    advice="Keep at least two values over all ranks; on one device use BatchNorm.",
    remedies=("drop", "fill", "size"),
    applies=lambda pipeline: (
        of_torch(pipeline) and trains(pipeline) and count(pipeline.model.sync_batch_norm) > 0
    ),
    fires=_sync_short,
    says=_say_sync,
    example=example(1025, 64, model=ModelFacts(sync_batch_norm=1, batch_norm_values=1)),
)


def _chunks(pipeline: Pipeline, layout: Layout) -> int:
    steps = made(layout)
    if any(0 in sizes for sizes in steps):
        return HARM
    if all(sizes[0] == sizes[-1] for sizes in steps):
        return NO
    return harm(pipeline.model.loss_in_forward)


def _say_chunks(pipeline: Pipeline, layout: Layout) -> Said:
    steps = made(layout)
    uneven = [step for step in steps if step[0] != step[-1]]
    sizes = next((step for step in uneven if 0 in step), uneven[-1])
    idle = sizes.count(0)
    when = "every step"
    if max(layout.batches) == 1:
        when = "the only step"
    elif len(steps) > 1:
        when = "the last step" if sizes == layout.last else "a full step"
    what = f"{idle} of {len(sizes)} GPUs have no work" if idle else "the GPUs have unequal parts"
    if pipeline.model.loss_in_forward and not idle:
        what += ", and the mean of their losses is a mean of means"
    if len(set(filter(None, sizes))) > 1:
        what += "; an output whose batch is not in axis 0 cannot be gathered, and that step fails"
    return say(
        f"{when} is cut into {format_runs(sizes)}: {what}",
        Evidence(metric="GPUs without work", value=idle, threshold=0),
    )


DATAPARALLEL_CHUNKS = TailCase(
    number=14,
    id="dataparallel.chunks",
    severity="waste",
    title="DataParallel leaves GPUs without work",
    what=(
        "The batch is cut into chunks of ceil(L/R): 9 samples on 8 GPUs are 2, 2, 2, 2, 1 and "
        "three idle GPUs; 10 on 4 are 3, 3, 3, 1, and BatchNorm raises on the last. No GPU is "
        "idle if R divides L or L > (R-1)^2. A loss from the gathered outputs is exact; the mean "
        "of losses computed inside forward is a mean of means. Outputs are put together along "
        "axis 0: where parts are unequal, one with its batch in another axis (states of an LSTM, "
        "the mems of XLNet) raises RuntimeError in this step alone. Hugging Face's Trainer uses "
        "DataParallel by itself where it sees several GPUs and no launcher."
    ),
    advice="Take a size whose tail the GPUs share evenly, drop the tail, or use one process a GPU.",
    remedies=("drop", "fill", "size", "smaller", "multiple", "gathered loss", "ddp", "ranks"),
    applies=lambda pipeline: pipeline.setup == "data-parallel",
    fires=_chunks,
    says=_say_chunks,
    example=example_of_ranks(1029, 64, "data-parallel"),
)


def _evened(pipeline: Pipeline, layout: Layout) -> int:
    """The Trainer leaves repeated samples out of what it evaluates and predicts."""
    degree = _duplicates(pipeline, layout)
    return min(degree, MET) if pipeline.setup == "trainer" and not trains(pipeline) else degree


ACCELERATE_EVEN_BATCHES = TailCase(
    number=15,
    id="accelerate.even-batches",
    severity="waste",
    title="Accelerate fills the last step with repeated samples",
    what=(
        "even_batches=True (the default) gives every rank full batches by starting again: N = 9, "
        "B = 4, R = 2 draws 16 samples, 7 of them twice; N = 1 draws 8 copies. No batch is short "
        "and BatchNorm is safe; up to B*R-1 samples an epoch are repeated."
    ),
    advice="Where that share matters, drop the last step before prepare.",
    remedies=("drop", "size", "smaller"),
    applies=lambda pipeline: pipeline.setup in ACCELERATE_SETUPS and pipeline.num_ranks > 1,
    fires=_evened,
    says=_say_duplicates,
    example=example_of_ranks(1030, 64, "accelerate"),
)


def _uneven_deal(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return HARM if layout.last and layout.last[0] != layout.last[-1] else NO


def _say_uneven_deal(pipeline: Pipeline, layout: Layout) -> Said:
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


ACCELERATE_UNEVEN = TailCase(
    number=16,
    id="accelerate.uneven",
    severity="error",
    title="Accelerate without even_batches: uneven ranks",
    what=(
        "even_batches=False deals whole batches in turn: N = 17, B = 4, R = 2 gives 3 and 2 "
        "batches, which hangs or aborts; gather on unequal shapes aborts the process (gloo). "
        "join_uneven_inputs has no effect on CPU ranks. Different sizes are weighed as in "
        "ddp.uneven-sizes."
    ),
    advice="Drop the last step, or let even_batches fill it.",
    remedies=("drop", "even"),
    applies=lambda pipeline: (
        pipeline.setup in ACCELERATE_SETUPS
        and not pipeline.even_batches
        and not dispatches(pipeline)
    ),
    fires=_uneven_deal,
    says=_say_uneven_deal,
    example=example_of_ranks(1030, 64, "accelerate", even_batches=False),
)


def _say_dispatched(pipeline: Pipeline, layout: Layout) -> Said:
    del pipeline
    return say(
        f"the dispatcher shares what is left: {format_runs(layout.last)} samples by rank, each of "
        f"which weighs {layout.weight:.1f} times the others under a mean loss",
        Evidence(metric="weight of a sample", value=layout.weight, threshold=HARMFUL_WEIGHT),
    )


ACCELERATE_DISPATCH = TailCase(
    number=18,
    id="accelerate.dispatch",
    severity="bias",
    title="Accelerate's dispatcher cuts the last step into small parts",
    what=(
        "dispatch_batches (the default for iterable datasets) shares what is left among the ranks "
        "and only fills it to a multiple of them: N = 9, B = 4, R = 2 ends with one sample on "
        "each rank, which is norm.one-value for BatchNorm."
    ),
    advice="Drop the last step.",
    remedies=("drop", "fill"),
    applies=lambda pipeline: pipeline.setup in ACCELERATE_SETUPS and dispatches(pipeline),
    fires=short,
    says=_say_dispatched,
    example=example_of_ranks(1030, 64, "accelerate", iterable=True),
)


def _gathered(pipeline: Pipeline, layout: Layout) -> int:
    del pipeline
    return HARM if layout.duplicates else NO


def _say_gathered(pipeline: Pipeline, layout: Layout) -> Said:
    del pipeline
    kept = layout.last_samples - layout.duplicates
    return say(
        f"gather_for_metrics returns {format_count(layout.last_samples)} values for the "
        f"{counted(kept)} of the last step of this iterable dataset",
        Evidence(metric="repeated samples", value=layout.duplicates, threshold=0),
    )


ACCELERATE_GATHER_FOR_METRICS = TailCase(
    number=19,
    id="accelerate.gather-for-metrics",
    severity="bias",
    title="gather_for_metrics keeps repeated samples",
    what=(
        "gather_for_metrics removes the repeated samples for data sets with a length and under "
        "the dispatcher. For an iterable dataset with dispatch_batches=False it does not: the "
        "last step of 9 samples with B = 4, R = 2 gives 8 values and not 1."
    ),
    advice="Give the data set a length, or cut by hand.",
    remedies=("cut",),
    applies=lambda pipeline: (
        pipeline.setup in ACCELERATE_SETUPS
        and pipeline.stage != "train"
        and pipeline.iterable
        and not dispatches(pipeline)
    ),
    fires=_gathered,
    says=_say_gathered,
    example=example_of_ranks(
        1030, 64, "accelerate", iterable=True, dispatch_batches=False, stage="validate"
    ),
)


def _say_split(pipeline: Pipeline) -> Said:
    ranks, size = pipeline.num_ranks, pipeline.batch_size
    return say(
        f"split_batches: a global batch of {format_count(size)} is no multiple of "
        f"{ranks} processes; prepare raises ValueError",
        Evidence(metric="batch size modulo processes", value=size % ranks, threshold=0),
    )


ACCELERATE_SPLIT = TailCase(
    number=17,
    id="accelerate.split",
    severity="error",
    title="split_batches needs a multiple of the ranks",
    what=(
        "Under split_batches=True the batch size is that of all ranks; one that they do not share "
        "evenly raises ValueError '... needs to be a round multiple of the number of processes'."
    ),
    advice="Take a multiple of the number of processes.",
    remedies=("multiple",),
    refuses=_say_split,
    example=example_of_ranks(1000, 50, "accelerate", split_batches=True),
)


RANK_CASES: tuple[TailCase, ...] = (
    DISTRIBUTED_DUPLICATES,
    DISTRIBUTED_NO_SAMPLES,
    DDP_NO_SAMPLER,
    DDP_UNEVEN_STEPS,
    JOIN_DIVISOR,
    DDP_UNEVEN_SIZES,
    SYNCBN_SHORT_RANK,
    DATAPARALLEL_CHUNKS,
    ACCELERATE_EVEN_BATCHES,
    ACCELERATE_UNEVEN,
    ACCELERATE_DISPATCH,
    ACCELERATE_GATHER_FOR_METRICS,
    ACCELERATE_SPLIT,
)
