"""For each case a pipeline that meets it; its page shows the fixes that help there."""

from __future__ import annotations

from typing import Any

from ...records import ModelFacts, Pipeline

BATCH_NORM = ModelFacts(batch_norm=1, batch_norm_values=1)


def _pipeline(num_samples: int, batch_size: int, **fields: Any) -> Pipeline:
    return Pipeline(num_samples=num_samples, batch_size=batch_size, **fields)


def _ranks(num_samples: int, batch_size: int, setup: Any, **fields: Any) -> Pipeline:
    return _pipeline(num_samples, batch_size, setup=setup, num_ranks=4, **fields)


EXAMPLES: dict[str, Pipeline] = {
    "loader.short": _pipeline(50_000, 503, model=ModelFacts(optimizer="SGD")),
    "loader.no-steps": _pipeline(100, 128, drop_last=True),
    "iterable.worker-tails": _pipeline(1010, 60, iterable=True, num_workers=2),
    "norm.one-value": _pipeline(1025, 64, model=BATCH_NORM),
    "norm.few-samples": _pipeline(1029, 64, model=BATCH_NORM),
    "loss.empty-batch": _pipeline(1029, 64, setup="ddp", num_ranks=2, rank_batch_sizes=(48, 16)),
    "distributed.duplicates": _ranks(17, 4, "ddp"),
    "distributed.no-samples": _ranks(3, 1, "ddp", sampler_drop_last=True),
    "ddp.no-sampler": _ranks(1000, 50, "ddp", sampler="plain"),
    "ddp.uneven-steps": _ranks(1025, 64, "ddp", sampler="shards"),
    "join.divisor": _ranks(1025, 64, "join"),
    "ddp.uneven-sizes": _pipeline(1024, 64, setup="ddp", num_ranks=2, rank_batch_sizes=(48, 16)),
    "syncbn.short-rank": _pipeline(
        1025, 64, model=ModelFacts(sync_batch_norm=1, batch_norm_values=1)
    ),
    "dataparallel.chunks": _ranks(1029, 64, "data-parallel"),
    "accelerate.even-batches": _ranks(1030, 64, "accelerate"),
    "accelerate.uneven": _ranks(1030, 64, "accelerate", even_batches=False),
    "accelerate.split": _ranks(1000, 50, "accelerate", split_batches=True),
    "accelerate.dispatch": _ranks(1030, 64, "accelerate", iterable=True),
    "accelerate.gather-for-metrics": _ranks(
        1030, 64, "accelerate", iterable=True, dispatch_batches=False, stage="validate"
    ),
    "accumulation.tail": _pipeline(1020, 60, micro_batches=4),
    "lightning.sampler": _ranks(1030, 64, "lightning", stage="validate"),
    "trainer.drop-last": _ranks(1030, 64, "trainer", drop_last=True, stage="predict"),
    "keras.one-sample": _pipeline(1025, 64, setup="keras-tensorflow", model=BATCH_NORM),
    "mirrored.empty-replica-nan": _ranks(1029, 64, "mirrored", model=BATCH_NORM),
    "mirrored.empty-replica-scale": _ranks(1029, 64, "mirrored"),
    "mirrored.first-batch": _ranks(1000, 50, "mirrored"),
    "multiworker.fit": _ranks(1024, 64, "multi-worker-mirrored"),
    "jax.indivisible": _ranks(1025, 64, "jax"),
    "keras-torch.distribution": _ranks(1024, 64, "keras-torch"),
    "compiled.shape": _pipeline(1040, 64, model=ModelFacts(compiled="default")),
    "loader.below-one-batch": _ranks(100, 64, "ddp"),
    "model.multiple": _pipeline(1027, 64, model=ModelFacts(multiple_of=2)),
    "loss.contrastive": _pipeline(1028, 64, model=ModelFacts(loss="contrastive")),
}
