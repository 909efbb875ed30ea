"""Cases that one process can meet: its loader, its norm layers, its loss, its accumulation."""

from __future__ import annotations

from ....records import Case
from .row import case

LOADER_CASES: tuple[Case, ...] = (
    case(
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
    case(
        2,
        "loader.no-steps",
        "error",
        "An epoch makes no step",
        "With drop_last=True and fewer samples than one batch, len(loader) is 0: the training "
        "loop runs through without a step and without an error.",
        "Take a batch size that the data of one rank, or one data worker, can fill.",
        "smaller",
        "ranks",
        "shards",
    ),
    case(
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
    case(
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
    case(
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
    case(
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
    case(
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
    case(
        29,
        "keras-torch.distribution",
        "error",
        "Keras on torch has no keras.distribution",
        "On the torch backend keras.distribution.DataParallel raises AttributeError: nothing "
        "spreads a step over devices.",
        "Use DistributedDataParallel by hand, or Accelerate.",
        "ddp",
    ),
    case(
        30,
        "compiled.shape",
        "slow",
        "A short batch is a new shape to compile",
        "torch.compile recompiles once, then for dynamic shapes; with dynamic=False, JAX and "
        "tf.function for every new tail. dynamic=True does not. CUDA graphs need fixed shapes. "
        "TPUStrategy pads a short batch, or takes static shapes only.",
        "Drop the short batch: it also saves the compilation.",
        "drop",
        "dynamic",
    ),
    case(
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
    case(
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
    case(
        33,
        "model.multiple",
        "error",
        "The model takes multiples of a number only",
        "Code that pairs or groups the samples of a batch does not take every size: timm's Mixup "
        "asserts an even one, a layer that compares groups of 4 reshapes and takes at most 4 or a "
        "multiple of 4. A last batch of another size raises at the end of the first epoch.",
        "Drop the short batch, or fill it: where the number of samples is no multiple, no size "
        "that is one leaves one.",
        "drop",
        "fill",
        "size",
    ),
)
