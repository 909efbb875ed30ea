"""The cases that an epoch's end can be: each by its id, what happens, and what to do."""

from __future__ import annotations

from ...records import Case, Severity


def _case(  # noqa: PLR0917  # a row of the table
    number: int,
    name: str,
    severity: Severity,
    title: str,
    what: str,
    advice: str,
    *remedies: str,
) -> Case:
    return Case(
        id=name,
        number=number,
        severity=severity,
        title=title,
        what=what,
        advice=advice,
        fixes=remedies,
    )


CASES: tuple[Case, ...] = (
    _case(
        1,
        "loader.short",
        "bias",
        "The last batch is short",
        "N samples in batches of B leave L = N % B for the last step. Under a mean loss each of "
        "them weighs B/L times the others, and the variance of that step's gradient is B/L times "
        "as large. N = kB + 1 is the worst: a single sample moves the model like a full batch.",
        "Drop it (with shuffling other samples are left out each time), repeat samples to fill "
        "it, or take a size that divides N or leaves at least half a batch. Scaling the loss by "
        "L/B is exact for SGD, with and without momentum; Adam divides the scale out again.",
        "drop",
        "fill",
        "size",
        "scale",
        "weigh",
    ),
    _case(
        2,
        "loader.no-steps",
        "error",
        "An epoch makes no step",
        "With drop_last=True and fewer samples than one batch, len(loader) is 0: the training "
        "loop runs through without a step and without an error.",
        "Take a batch size that the data of one rank can fill.",
        "smaller",
        "ranks",
    ),
    _case(
        3,
        "iterable.worker-tails",
        "waste",
        "Every data worker makes a tail of its own",
        "An iterable dataset is cut into batches inside each worker, so W workers leave up to W "
        "short batches; drop_last=True drops one in each worker. Ten samples, B = 4, W = 3: sizes "
        "4, 3, 3, of which drop_last keeps the first.",
        "Make the share of each worker a multiple of the batch size, or use one worker for small "
        "data.",
        "shards",
        "size",
    ),
    _case(
        4,
        "norm.one-value",
        "error",
        "A normalisation layer sees one value per channel",
        "torch's BatchNorm raises ValueError 'Expected more than 1 value per channel when "
        "training' when samples x height x width is 1: a last batch of one sample ends the run at "
        "the end of the first epoch. Maps larger than 1x1 are fine, eval() is. GroupNorm with one "
        "value per group raises likewise, InstanceNorm on 1x1 maps at every batch size; "
        "LayerNorm never does.",
        "Drop the short batch, or take a size with N % B not 1.",
        "drop",
        "fill",
        "size",
        "norm",
        "frozen",
        "sync",
        "groups",
        "spatial",
    ),
    _case(
        5,
        "norm.few-samples",
        "bias",
        "BatchNorm's statistics come from a few samples",
        "With 2 to about 8 samples BatchNorm raises nothing; its running statistics move towards "
        "those of the few samples once an epoch, by momentum (0.1) of the difference.",
        "Drop the short batch, or normalise without batch statistics.",
        "drop",
        "fill",
        "size",
        "norm",
    ),
    _case(
        6,
        "loss.empty-batch",
        "nan",
        "A rank gets no sample in the last step",
        "A batch of 0 rows passes Linear, Conv, LSTM, attention and BatchNorm (its statistics "
        "stay as they are, gradients are 0), but the mean over no rows is NaN: the loss that is "
        "logged, and every sum that it enters.",
        "Divide the sum of the loss by max(1, n).",
        "sum",
        "drop",
    ),
    _case(
        7,
        "distributed.duplicates",
        "waste",
        "DistributedSampler repeats samples",
        "Every rank gets ceil(N/R) samples; what is missing is taken from the start, so that all "
        "ranks make equally many steps of equal sizes and none hangs. N = 17 on 4 ranks: 3 "
        "samples are drawn twice. Metrics count them twice as well.",
        "For training, drop on both levels; for metrics, count each sample once.",
        "drop",
        "smaller",
        "validate",
    ),
    _case(
        8,
        "distributed.no-samples",
        "error",
        "DistributedSampler leaves no sample for any rank",
        "DistributedSampler(drop_last=True) with fewer samples than ranks gives 0 samples to every "
        "rank: no step and no error.",
        "Use fewer ranks than samples.",
        "ranks",
        "pad",
    ),
    _case(
        9,
        "ddp.no-sampler",
        "waste",
        "Every rank trains on all the data",
        "Without a DistributedSampler (Lightning: use_distributed_sampler=False) each of R ranks "
        "draws the whole data set: R times the work for one epoch.",
        "Give the loader a DistributedSampler, or shard the iterable dataset by rank.",
        "sampler",
    ),
    _case(
        10,
        "ddp.uneven-steps",
        "error",
        "Ranks make different numbers of steps",
        "The rank with more batches waits in an all_reduce that the others never enter. If they "
        "have exited, gloo raises 'Connection closed by peer' (or 'reset by peer') at once; if "
        "they live, it waits for the timeout, by default 30 minutes for gloo and 10 for NCCL's "
        "watchdog.",
        "Give every rank the same number of batches, or join the uneven ones.",
        "drop",
        "together",
        "join",
    ),
    _case(
        11,
        "join.divisor",
        "bias",
        "Join divides by ranks that are done",
        "Join keeps the collectives of the remaining ranks going. By default the sum of gradients "
        "is divided by the ranks at the start: with k of R left each step is k/R of a usual one. "
        "divide_by_initial_world_size=False divides by k: then the samples of the last steps "
        "weigh more. With SyncBatchNorm Join cannot help, its collective is in the forward pass.",
        "Choose by what should stay: the weight of a sample (default) or the size of the step.",
        "join.divisor",
        "join.throw",
        "drop",
    ),
    _case(
        12,
        "ddp.uneven-sizes",
        "bias",
        "Ranks have different numbers of samples in a step",
        "DDP averages the ranks' means, so a sample of a rank with B_i of the B samples weighs "
        "B/(R*B_i) times what it should. With 6 and 2 samples: 0.67 and 2.",
        "Multiply the local mean loss by B_i*R/B; then the gradient is exact.",
        "global mean",
        "drop",
    ),
    _case(
        13,
        "syncbn.short-rank",
        "error",
        "SyncBatchNorm and ranks with one sample or none",
        "SyncBatchNorm weighs the ranks by their counts, so a rank with one sample is fine and one "
        "with none is left out. It raises for one value in a world of one rank; a single value "
        "over all ranks is not guarded. On CPU tensors it raises where a process group runs.",
        "Keep at least two values over all ranks; on one device use BatchNorm.",
        "drop",
        "fill",
        "size",
    ),
    _case(
        14,
        "dataparallel.chunks",
        "waste",
        "DataParallel leaves GPUs without work",
        "The batch is cut into chunks of ceil(L/R): 9 samples on 8 GPUs are 2, 2, 2, 2, 1 and "
        "three idle GPUs; 10 on 4 are 3, 3, 3, 1, and BatchNorm raises on the last. No GPU is "
        "idle if R divides L or L > (R-1)^2. A loss from the gathered outputs is exact; the mean "
        "of losses computed inside forward is a mean of means. Hugging Face's Trainer uses "
        "DataParallel by itself where it sees several GPUs and no launcher.",
        "Take a size whose tail the GPUs share evenly, drop the tail, or use one process a GPU.",
        "drop",
        "fill",
        "size",
        "smaller",
        "multiple",
        "gathered loss",
        "ddp",
        "ranks",
    ),
    _case(
        15,
        "accelerate.even-batches",
        "waste",
        "Accelerate fills the last step with repeated samples",
        "even_batches=True (the default) gives every rank full batches by starting again: N = 9, "
        "B = 4, R = 2 draws 16 samples, 7 of them twice; N = 1 draws 8 copies. No batch is short "
        "and BatchNorm is safe; up to B*R-1 samples an epoch are repeated.",
        "Where that share matters, drop the last step before prepare.",
        "drop",
        "size",
        "smaller",
    ),
    _case(
        16,
        "accelerate.uneven",
        "error",
        "Accelerate without even_batches: uneven ranks",
        "even_batches=False deals whole batches in turn: N = 17, B = 4, R = 2 gives 3 and 2 "
        "batches, which hangs or aborts; gather on unequal shapes aborts the process (gloo). "
        "join_uneven_inputs has no effect on CPU ranks. Different sizes are weighed as in "
        "ddp.uneven-sizes.",
        "Drop the last step, or let even_batches fill it.",
        "drop",
        "even",
    ),
    _case(
        17,
        "accelerate.split",
        "error",
        "split_batches needs a multiple of the ranks",
        "Under split_batches=True the batch size is that of all ranks; one that they do not share "
        "evenly raises ValueError '... needs to be a round multiple of the number of processes'.",
        "Take a multiple of the number of processes.",
        "multiple",
    ),
    _case(
        18,
        "accelerate.dispatch",
        "bias",
        "Accelerate's dispatcher cuts the last step into small parts",
        "dispatch_batches (the default for iterable datasets) shares what is left among the ranks "
        "and only fills it to a multiple of them: N = 9, B = 4, R = 2 ends with one sample on "
        "each rank, which is norm.one-value for BatchNorm.",
        "Drop the last step.",
        "drop",
        "fill",
    ),
    _case(
        19,
        "accelerate.gather-for-metrics",
        "bias",
        "gather_for_metrics keeps repeated samples",
        "gather_for_metrics removes the repeated samples for data sets with a length and under "
        "the dispatcher. For an iterable dataset with dispatch_batches=False it does not: the "
        "last step of 9 samples with B = 4, R = 2 gives 8 values and not 1.",
        "Give the data set a length, or cut by hand.",
        "cut",
    ),
    _case(
        20,
        "accumulation.tail",
        "bias",
        "The last optimizer step accumulates fewer micro-batches",
        "Accelerate's accumulate and Lightning divide by the accumulation A always: k < A "
        "micro-batches at the epoch's end give k/A of a step, as a loop with loss / A does. "
        "Hugging Face's Trainer divides by what was really accumulated.",
        "Make the number of micro-batches a multiple of A, or rescale by A/k.",
        "accumulation",
        "drop",
        "size",
    ),
    _case(
        21,
        "lightning.sampler",
        "bias",
        "Lightning puts a DistributedSampler in",
        "With several devices, use_distributed_sampler=True replaces the sampler: training is "
        "shuffled even with shuffle=False, and validation repeats samples to make ranks equal, "
        "so that the mean of 0..8 came out as 3.6 and not 4.0 (9 samples, B = 4, two ranks). "
        "Prediction repeats nothing, and ignores drop_last=True: all samples are predicted.",
        "Validate on one device, or with metrics that count samples.",
        "validate",
        "drop",
    ),
    _case(
        22,
        "trainer.drop-last",
        "waste",
        "dataloader_drop_last drops predictions too",
        "TrainingArguments(dataloader_drop_last=True) holds for evaluation and prediction as "
        "well: 8 predictions for 9 samples.",
        "Drop in the training loader only.",
        "keep",
    ),
    _case(
        23,
        "keras.one-sample",
        "bias",
        "Keras BatchNormalization on one sample, without an error",
        "Keras 3 raises nothing for a batch of one sample: the variance is 0, and the moving "
        "variance is multiplied by the momentum (0.99 by default, 0.9 in the test) each time.",
        "Drop the remainder.",
        "drop",
        "fill",
        "size",
    ),
    _case(
        24,
        "mirrored.empty-replica-nan",
        "nan",
        "MirroredStrategy: an empty replica turns the weights into NaN",
        "The tail is cut into chunks of ceil(L/R), as by DataParallel. Where that leaves a replica "
        "empty, BatchNormalization makes its gradients NaN: gamma, beta and the kernels before it "
        "are NaN after epoch 1, while the loss of epoch 1 looks finite. TerminateOnNaN acts an "
        "epoch late.",
        "Drop the remainder, synchronise BatchNormalization, or take a tail above (R-1)^2.",
        "drop",
        "keras.sync",
        "fill",
        "size",
    ),
    _case(
        25,
        "mirrored.empty-replica-scale",
        "bias",
        "MirroredStrategy: empty replicas shrink the step",
        "Without BatchNormalization nothing is NaN, but the gradient is a mean over all replicas "
        "of which some have none: it is (replicas with samples)/R of what it should be.",
        "Drop the remainder.",
        "drop",
        "fill",
        "size",
    ),
    _case(
        26,
        "mirrored.first-batch",
        "error",
        "MirroredStrategy: a first batch that is not shared evenly",
        "If the replicas get different numbers of samples in the very first batch, fit raises "
        "InvalidArgumentError 'Inputs to operation AddN ... must have the same size and shape'.",
        "Make the global batch a multiple of the replicas, and no larger than the data.",
        "multiple",
        "smaller",
    ),
    _case(
        27,
        "multiworker.fit",
        "error",
        "MultiWorkerMirroredStrategy does not train with Keras 3",
        "With two workers fit raises ValueError 'Attempt to convert a value (PerReplica...' "
        "whatever the sizes; one worker alone trains.",
        "Use torch DDP, keras.distribution on JAX, or tf_keras.",
        "keras.other",
    ),
    _case(
        28,
        "jax.indivisible",
        "error",
        "JAX: a batch that the devices do not share evenly",
        "keras.distribution.DataParallel shards the batch axis. A tail that the devices do not "
        "divide raises IndivisibleError at the last step of the first epoch.",
        "Drop the remainder, or take a size whose tail the devices divide.",
        "drop",
        "multiple",
        "size",
    ),
    _case(
        29,
        "keras-torch.distribution",
        "error",
        "Keras on torch has no keras.distribution",
        "On the torch backend keras.distribution.DataParallel raises AttributeError: nothing "
        "spreads a step over devices.",
        "Use DistributedDataParallel by hand, or Accelerate.",
        "ddp",
    ),
    _case(
        30,
        "compiled.shape",
        "slow",
        "A short batch is a new shape to compile",
        "torch.compile recompiles once, then for dynamic shapes; with dynamic=False, JAX and "
        "tf.function for every new tail. dynamic=True does not. CUDA graphs need fixed shapes.",
        "Drop the short batch: it also saves the compilation.",
        "drop",
        "dynamic",
    ),
    _case(
        31,
        "loader.below-one-batch",
        "waste",
        "All samples are fewer than one batch",
        "With N below one batch of all ranks an epoch is a single step that never has the batch "
        "size that was asked for; samplers that pad repeat samples to fill it, and with "
        "drop_last=True there is no step at all (loader.no-steps).",
        "Take a batch size that the data can fill, or fewer ranks.",
        "smaller",
        "ranks",
    ),
    _case(
        32,
        "loss.contrastive",
        "bias",
        "A contrastive loss has fewer samples to compare in a short batch",
        "A loss such as InfoNCE compares each sample with the others of its batch: L samples have "
        "L - 1 negatives and not B - 1, which makes their task easier and its loss smaller "
        "(log L and not log B where nothing is learned yet), and one sample alone has a loss and a "
        "gradient of 0. A sample that is repeated to fill the batch is a false negative of itself.",
        "Drop the short batch, or take a size that leaves none.",
        "drop",
        "size",
    ),
)
BY_ID = {one.id: one for one in CASES}


def case_of(name: str) -> Case | None:
    """The case of an id, or of a number from 1."""
    if name.isascii() and name.isdigit() and 1 <= int(name) <= len(CASES):
        return CASES[int(name) - 1]
    return BY_ID.get(name)
