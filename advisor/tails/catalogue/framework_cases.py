"""Cases that a trainer or a backend brings along: Lightning, Trainer, Keras, JAX."""

from __future__ import annotations

from ....records import Case
from .row import case

FRAMEWORK_CASES: tuple[Case, ...] = (
    case(
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
    case(
        22,
        "trainer.drop-last",
        "waste",
        "dataloader_drop_last drops predictions too",
        "TrainingArguments(dataloader_drop_last=True) holds for evaluation and prediction as "
        "well: 8 predictions for 9 samples.",
        "Drop in the training loader only.",
        "keep",
    ),
    case(
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
    case(
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
    case(
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
    case(
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
    case(
        27,
        "multiworker.fit",
        "error",
        "MultiWorkerMirroredStrategy does not train with Keras 3",
        "With two workers fit raises ValueError 'Attempt to convert a value (PerReplica...' "
        "whatever the sizes; one worker alone trains.",
        "Use torch DDP, keras.distribution on JAX, or tf_keras.",
        "keras.other",
    ),
    case(
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
)
