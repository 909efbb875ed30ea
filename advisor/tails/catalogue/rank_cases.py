"""Cases of several ranks or devices in torch: DDP and its kind, DataParallel, Accelerate."""

from __future__ import annotations

from ....records import Case
from .row import case

RANK_CASES: tuple[Case, ...] = (
    case(
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
    case(
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
    case(
        9,
        "ddp.no-sampler",
        "waste",
        "Every rank trains on all the data",
        "Without a DistributedSampler (Lightning: use_distributed_sampler=False) each of R ranks "
        "draws the whole data set: R times the work for one epoch.",
        "Give the loader a DistributedSampler, or shard the iterable dataset by rank.",
        "sampler",
    ),
    case(
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
    case(
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
    case(
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
    case(
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
    case(
        14,
        "dataparallel.chunks",
        "waste",
        "DataParallel leaves GPUs without work",
        "The batch is cut into chunks of ceil(L/R): 9 samples on 8 GPUs are 2, 2, 2, 2, 1 and "
        "three idle GPUs; 10 on 4 are 3, 3, 3, 1, and BatchNorm raises on the last. No GPU is "
        "idle if R divides L or L > (R-1)^2. A loss from the gathered outputs is exact; the mean "
        "of losses computed inside forward is a mean of means. Outputs are put together along "
        "axis 0: where parts are unequal, one with its batch in another axis (states of an LSTM, "
        "the mems of XLNet) raises RuntimeError in this step alone. Hugging Face's Trainer uses "
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
    case(
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
    case(
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
    case(
        17,
        "accelerate.split",
        "error",
        "split_batches needs a multiple of the ranks",
        "Under split_batches=True the batch size is that of all ranks; one that they do not share "
        "evenly raises ValueError '... needs to be a round multiple of the number of processes'.",
        "Take a multiple of the number of processes.",
        "multiple",
    ),
    case(
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
    case(
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
)
