"""What each remedy makes of a pipeline: the snippets that it may take, and the fields it changes.

Whether a change helps is not decided here: `fixes.py` puts it through the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from ...records import Pipeline
from .conditions import num_shares
from .pipeline import ACCELERATE, DDP, GLOBAL, KERAS, batch_is, own_size, sampler_of
from .sweeps import clean_first, downwards, is_clean, nearest_clean, outwards

SGD = ("SGD", "sgd", "Nesterov")
"""Optimizers for which scaling the loss scales the step (Adam divides it out again)."""

Changed = Iterator[tuple[str, dict[str, Any]]]
"""Name of a snippet, and the fields of the pipeline that are another then."""


def _model(pipeline: Pipeline, **facts: Any) -> dict[str, Any]:
    return {"model": msgspec.structs.replace(pipeline.model, **facts)}


def _has_samplers(pipeline: Pipeline) -> bool:
    """Whether each of several ranks has a loader with a sampler of its own."""
    return (
        pipeline.setup in (*DDP, "lightning")
        and pipeline.num_ranks > 1
        and not pipeline.rank_batch_sizes
    )


def _global_samples(pipeline: Pipeline) -> int:
    """Samples of a full step over all ranks."""
    if pipeline.rank_batch_sizes:
        return sum(pipeline.rank_batch_sizes)
    shared = pipeline.num_ranks > 1 and pipeline.setup not in GLOBAL
    return own_size(pipeline) * (pipeline.num_ranks if shared else 1)


def _drop(pipeline: Pipeline) -> Changed:
    """In training only: elsewhere a sample that is dropped is a result that is missing."""
    if pipeline.stage != "train":
        return
    setup, drop = pipeline.setup, {"drop_last": True}
    both: dict[str, Any] = {"sampler": "distributed", "sampler_drop_last": True}
    if setup in KERAS:
        yield "drop.keras", drop
    elif setup == "trainer":
        yield "drop.trainer", drop
    elif setup == "accelerate":
        yield "drop.accelerate.iterable" if pipeline.iterable else "drop.accelerate", drop
    elif pipeline.rank_batch_sizes:
        yield "drop.sliced", drop
    elif not _has_samplers(pipeline) or pipeline.iterable:
        yield "drop.iterable" if pipeline.iterable else "drop", drop
    elif setup == "lightning":
        yield "drop.lightning", {**both, **drop}
    else:
        yield "drop.ddp", {**both, **drop}
        yield "drop.sampler", {**both, "drop_last": False}


def _fill(pipeline: Pipeline) -> Changed:
    """Nothing is repeated where results are counted, or where the data set cannot be indexed."""
    if pipeline.stage != "train" or pipeline.rank_batch_sizes or pipeline.num_samples is None:
        return
    setup = pipeline.setup
    if setup in ACCELERATE and pipeline.num_ranks > 1:
        name = "fill.trainer" if setup == "trainer" else "fill.accelerate"
        yield name, {"even_batches": True, "dispatch_batches": False}
        return
    whole = _global_samples(pipeline)
    if pipeline.iterable or pipeline.num_samples < whole:
        return
    padded: dict[str, Any] = {"num_samples": -(-pipeline.num_samples // whole) * whole}
    if setup in KERAS:
        yield "fill.keras", padded
    elif not _has_samplers(pipeline):
        if setup != "trainer":
            yield "fill", padded
    elif sampler_of(pipeline) != "plain":
        yield "fill.ddp", {**padded, "sampler": "distributed"}


def _size(pipeline: Pipeline) -> Changed:
    if pipeline.rank_batch_sizes:
        return
    for size in nearest_clean(pipeline):
        yield "size", {"batch_size": size.batch_size}
    for row in filter(is_clean, outwards(pipeline)):
        yield "size", {"batch_size": row.batch_size}


def _smaller(pipeline: Pipeline) -> Changed:
    """The largest size that the samples of a rank or a worker fill, if fewer than one batch."""
    ranks = pipeline.num_ranks
    samples = (pipeline.num_samples or 0) // num_shares(pipeline)
    if samples >= _global_samples(pipeline):
        return
    if pipeline.rank_batch_sizes:
        sizes = pipeline.rank_batch_sizes
        fewer = tuple(size * samples // sum(sizes) for size in sizes)
        yield "smaller.sliced", {"rank_batch_sizes": fewer, "batch_size": sum(fewer)}
        return
    top = samples if batch_is(pipeline) == "global" else max(1, samples // ranks)
    top = min(top, pipeline.batch_size - 1)
    for row in downwards(pipeline, top):
        yield "smaller", {"batch_size": row.batch_size}
    if pipeline.stage == "train":
        dropping = msgspec.structs.replace(pipeline, drop_last=True)
        for row in downwards(dropping, top):
            yield "smaller.drop", {"batch_size": row.batch_size, "drop_last": True}


def _multiple(pipeline: Pipeline) -> Changed:
    ranks = pipeline.num_ranks
    for row in clean_first(outwards(pipeline, step=ranks)):
        yield "multiple", {"batch_size": row.batch_size}
    if pipeline.stage == "train" and pipeline.setup in GLOBAL:
        of_torch = "multiple.drop.iterable" if pipeline.iterable else "multiple.drop.torch"
        name = "multiple.drop" if pipeline.setup in KERAS else of_torch
        dropping = msgspec.structs.replace(pipeline, drop_last=True)
        for row in clean_first(outwards(dropping, step=ranks)):
            yield name, {"batch_size": row.batch_size, "drop_last": True}


def _ranks(pipeline: Pipeline) -> Changed:
    """Fewer ranks: as many as have a full batch each, else as many as there are samples."""
    samples, ranks, size = pipeline.num_samples or 0, pipeline.num_ranks, pipeline.batch_size
    if pipeline.rank_batch_sizes or ranks < 2:
        return
    if pipeline.setup == "data-parallel":
        for fewer in range(ranks - 1, 0, -1):
            yield "ranks.data-parallel", {"num_ranks": fewer}
        return
    launched = pipeline.setup in (*DDP, *ACCELERATE)
    name = "ranks.lightning" if pipeline.setup == "lightning" else "ranks"
    name = "ranks.torchrun" if launched else name
    for fewer in range(min(ranks - 1, samples // own_size(pipeline)), 0, -1):
        yield name, {"num_ranks": fewer}
    if samples < ranks:
        yield name, {"num_ranks": samples, "batch_size": min(size, max(1, samples // ranks))}


def _scale(pipeline: Pipeline) -> Changed:
    """`loss * L / B` gives a sample the weight that it has under a summed loss."""
    own = pipeline.setup not in (*KERAS, "trainer")
    if pipeline.model.optimizer in SGD and own and pipeline.stage == "train":
        yield "scale", _model(pipeline, loss="sum")


def _weigh(pipeline: Pipeline) -> Changed:
    if pipeline.stage == "validate" and pipeline.setup not in (*KERAS, "trainer", "lightning"):
        yield "weigh", _model(pipeline, loss="sum")


def _shards(pipeline: Pipeline) -> Changed:
    yield "shards", {"num_workers": 1}
    if pipeline.stage == "train":
        yield "shards.drop", {"num_workers": 1, "drop_last": True}


def _sync(pipeline: Pipeline) -> Changed:
    """Ranks that stop early would hang in the collective of its forward pass."""
    setups = ("ddp", "distributed-sampler", "lightning", *ACCELERATE)
    if pipeline.num_ranks > 1 and pipeline.setup in setups and pipeline.model.batch_norm:
        name = "sync.lightning" if pipeline.setup == "lightning" else "sync"
        synced = pipeline.model.batch_norm
        yield name, _model(pipeline, batch_norm=0, sync_batch_norm=synced)


def _keras_sync(pipeline: Pipeline) -> Changed:
    yield "keras.sync", _model(pipeline, batch_norm=0, sync_batch_norm=pipeline.model.batch_norm)


def _norm(pipeline: Pipeline) -> Changed:
    if pipeline.model.batch_norm:
        yield "norm", _model(pipeline, batch_norm=0)


def _frozen(pipeline: Pipeline) -> Changed:
    if pipeline.model.batch_norm:
        yield "frozen", _model(pipeline, batch_norm=0)


def _groups(pipeline: Pipeline) -> Changed:
    if pipeline.model.group_norm_values == 1:
        yield "groups", _model(pipeline, group_norm_values=2)


def _spatial(pipeline: Pipeline) -> Changed:
    if pipeline.model.instance_norm:
        yield "spatial", _model(pipeline, instance_norm=0)


def _sum(pipeline: Pipeline) -> Changed:
    yield "sum", _model(pipeline, loss="sum")


def _global_mean(pipeline: Pipeline) -> Changed:
    """Its own collective needs all ranks in every step."""
    if pipeline.setup in ("ddp", "distributed-sampler", "accelerate"):
        yield "global mean", _model(pipeline, loss="sum")


def _sampler(pipeline: Pipeline) -> Changed:
    if pipeline.iterable:
        shards: dict[str, Any] = {"sampler": "shards"}
        if pipeline.setup == "distributed-sampler":
            shards["setup"] = "ddp"
        even = (pipeline.num_samples or 0) // pipeline.num_ranks * pipeline.num_ranks
        yield "sampler.iterable", shards
        yield "sampler.iterable.even", {**shards, "num_samples": even}
    elif pipeline.setup == "lightning":
        yield "sampler.lightning", {"sampler": None, "sampler_drop_last": False}
    else:
        yield "sampler", {"sampler": "distributed", "sampler_drop_last": False}
        yield "sampler.drop", {"sampler": "distributed", "sampler_drop_last": True}


def _pad(pipeline: Pipeline) -> Changed:
    if pipeline.sampler_drop_last:
        yield "sampler.pad", {"sampler": "distributed", "sampler_drop_last": False}


def _join(pipeline: Pipeline) -> Changed:
    if pipeline.setup == "ddp" and not pipeline.model.sync_batch_norm:
        yield "join", {"setup": "join", "sampler": sampler_of(pipeline)}


def _together(pipeline: Pipeline) -> Changed:
    if pipeline.setup == "ddp" and pipeline.stage == "train" and not pipeline.iterable:
        yield "together", {"stops_together": True}


def _divisor(pipeline: Pipeline) -> Changed:
    del pipeline
    yield "join.divisor", {"divide_by_initial_world_size": False}


def _throw(pipeline: Pipeline) -> Changed:
    if pipeline.stage == "train":
        yield "join.throw", {"stops_together": True}


def _even(pipeline: Pipeline) -> Changed:
    yield "even.trainer" if pipeline.setup == "trainer" else "even", {"even_batches": True}


def _gathered_loss(pipeline: Pipeline) -> Changed:
    if pipeline.model.loss_in_forward:
        yield "gathered loss", _model(pipeline, loss_in_forward=False)


def _to_ddp(name: str) -> Callable[[Pipeline], Changed]:
    """One process a device: the global batch is shared by the ranks."""

    def changed(pipeline: Pipeline) -> Changed:
        ranks, own = pipeline.num_ranks, pipeline.batch_size
        shared = batch_is(pipeline) == "global"
        if ranks < 2 or pipeline.iterable or (shared and own < ranks):
            return
        if shared:
            own //= ranks
        yield name, {"setup": "ddp", "batch_size": own, "batch_is": "per rank"}

    return changed


def _cut(pipeline: Pipeline) -> Changed:
    del pipeline
    yield "cut", {"iterable": False}


def _accumulation(pipeline: Pipeline) -> Changed:
    name = "accumulation.lightning" if pipeline.setup == "lightning" else "accumulation"
    yield name, {"mean_over_accumulated": True}


def _validate(pipeline: Pipeline) -> Changed:
    if pipeline.stage == "train" or pipeline.num_ranks < 2 or pipeline.rank_batch_sizes:
        return
    alone: dict[str, Any] = {
        "num_ranks": 1,
        "sampler": None,
        "sampler_drop_last": False,
        "batch_size": own_size(pipeline),
        "batch_is": None,
    }
    if pipeline.setup == "lightning":
        yield "validate", alone
    elif pipeline.setup in DDP:
        yield "validate.ddp", {**alone, "setup": "dataloader"}


def _keep(pipeline: Pipeline) -> Changed:
    del pipeline
    yield "drop.trainer", {"drop_last": False}


def _dynamic(pipeline: Pipeline) -> Changed:
    if pipeline.setup not in KERAS:
        yield "dynamic", _model(pipeline, compiled="dynamic")


REMEDIES: dict[str, Callable[[Pipeline], Changed]] = {
    "drop": _drop,
    "fill": _fill,
    "size": _size,
    "smaller": _smaller,
    "multiple": _multiple,
    "ranks": _ranks,
    "scale": _scale,
    "weigh": _weigh,
    "shards": _shards,
    "sync": _sync,
    "keras.sync": _keras_sync,
    "norm": _norm,
    "frozen": _frozen,
    "groups": _groups,
    "spatial": _spatial,
    "sum": _sum,
    "global mean": _global_mean,
    "sampler": _sampler,
    "pad": _pad,
    "join": _join,
    "together": _together,
    "join.divisor": _divisor,
    "join.throw": _throw,
    "even": _even,
    "gathered loss": _gathered_loss,
    "ddp": _to_ddp("ddp"),
    "keras.other": _to_ddp("keras.other"),
    "cut": _cut,
    "accumulation": _accumulation,
    "validate": _validate,
    "keep": _keep,
    "dynamic": _dynamic,
}
