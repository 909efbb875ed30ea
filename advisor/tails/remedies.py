"""The remedies: each as code, and the fields of a pipeline that it changes.

Whether a change helps is not decided here: `fixes.py` puts it through the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from ...records import Pipeline
from .case import RemedyName
from .conditions import num_shares
from .pipeline import ACCELERATE_SETUPS, DDP_SETUPS, GLOBAL, KERAS, batch_is, own_size, sampler_of
from .sweeps import clean_first, downwards, is_clean, nearest_clean, outwards

SGD = ("SGD", "sgd", "Nesterov")
"""Optimizers for which scaling the loss scales the step (Adam divides it out again)."""


class Snippet(NamedTuple):
    """A remedy as code.

    Attributes:
        code: with places for the numbers of a pipeline, such as `{size}`.
    """

    title: str
    code: str


Changed = Iterator[tuple[Snippet, dict[str, Any]]]
"""A snippet, and the fields of the pipeline that are another then."""


def _model(pipeline: Pipeline, **facts: Any) -> dict[str, Any]:
    return {"model": msgspec.structs.replace(pipeline.model, **facts)}


def _has_samplers(pipeline: Pipeline) -> bool:
    """Whether each of several ranks has a loader with a sampler of its own."""
    return (
        pipeline.setup in (*DDP_SETUPS, "lightning")
        and pipeline.num_ranks > 1
        and not pipeline.rank_batch_sizes
    )


def _global_samples(pipeline: Pipeline) -> int:
    """Samples of a full step over all ranks."""
    if pipeline.rank_batch_sizes:
        return sum(pipeline.rank_batch_sizes)
    shared = pipeline.num_ranks > 1 and pipeline.setup not in GLOBAL
    return own_size(pipeline) * (pipeline.num_ranks if shared else 1)


DROP = Snippet(
    "drop the short batch; with shuffling nothing is lost over epochs",
    "DataLoader(dataset, batch_size={size}, shuffle=True, drop_last=True)",
)
DROP_ITERABLE = Snippet(
    "drop the short batch; which samples that leaves out, the dataset's own order decides",
    "DataLoader(dataset, batch_size={size}, drop_last=True)",
)
DROP_DDP = Snippet(
    "drop on both levels: the sampler drops N % R, the loader what is left",
    (
        "sampler = DistributedSampler(dataset, drop_last=True)\n"
        "loader = DataLoader(dataset, batch_size={size}, sampler=sampler, drop_last=True)"
    ),
)
DROP_SAMPLER = Snippet(
    "drop N % R samples in the sampler: every rank's batches are then full",
    (
        "sampler = DistributedSampler(dataset, drop_last=True)\n"
        "loader = DataLoader(dataset, batch_size={size}, sampler=sampler)"
    ),
)
DROP_SLICED = Snippet(
    "drop the short step, of which some ranks have less than their share",
    (
        "starts = range(0, len(order) // {step} * {step}, {step})  # order: of this epoch\n"
        "first = sum(rank_batch_sizes[:rank])\n"
        "batches = [order[i + first :][: rank_batch_sizes[rank]] for i in starts]\n"
        "loader = DataLoader(dataset, batch_sampler=batches)"
    ),
)
DROP_LIGHTNING = Snippet(
    "give the loader a sampler of your own and drop on both levels",
    (
        "trainer = L.Trainer(strategy='ddp', use_distributed_sampler=False)\n"
        "# in train_dataloader(), where the ranks are known:\n"
        "sampler = DistributedSampler(dataset, drop_last=True)\n"
        "DataLoader(dataset, batch_size={size}, sampler=sampler, drop_last=True)"
    ),
)
DROP_ACCELERATE = Snippet(
    "drop before prepare: every rank then makes full batches of distinct samples",
    (
        "loader = DataLoader(dataset, batch_size={size}, shuffle=True, drop_last=True)\n"
        "loader = accelerator.prepare(loader)"
    ),
)
DROP_ACCELERATE_ITERABLE = Snippet(
    "drop before prepare: every rank then makes full batches of distinct samples",
    (
        "loader = DataLoader(dataset, batch_size={size}, drop_last=True)\n"
        "loader = accelerator.prepare(loader)"
    ),
)
DROP_TRAINER = Snippet(
    "drop in training only; the argument would drop predictions as well",
    (
        "class DropLast(Trainer):\n"
        "    def get_train_dataloader(self):\n"
        "        self.args.dataloader_drop_last = True\n"
        "        try:\n"
        "            return super().get_train_dataloader()\n"
        "        finally:\n"
        "            self.args.dataloader_drop_last = False"
    ),
)
DROP_KERAS = Snippet(
    "drop the short batch, or cut an array to whole batches",
    (
        "dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(10_000)\n"
        "dataset = dataset.batch({size}, drop_remainder=True)\n"
        "# arrays: n = len(x) // {size} * {size}; model.fit(x[:n], y[:n], batch_size={size})"
    ),
)


def _drop(pipeline: Pipeline) -> Changed:
    """In training only: elsewhere a sample that is dropped is a result that is missing."""
    if pipeline.stage != "train":
        return
    setup, drop = pipeline.setup, {"drop_last": True}
    both: dict[str, Any] = {"sampler": "distributed", "sampler_drop_last": True}
    if setup in KERAS:
        yield DROP_KERAS, drop
    elif setup == "trainer":
        yield DROP_TRAINER, drop
    elif setup == "accelerate":
        yield DROP_ACCELERATE_ITERABLE if pipeline.iterable else DROP_ACCELERATE, drop
    elif pipeline.rank_batch_sizes:
        yield DROP_SLICED, drop
    elif not _has_samplers(pipeline) or pipeline.iterable:
        yield DROP_ITERABLE if pipeline.iterable else DROP, drop
    elif setup == "lightning":
        yield DROP_LIGHTNING, {**both, **drop}
    else:
        yield DROP_DDP, {**both, **drop}
        yield DROP_SAMPLER, {**both, "drop_last": False}


FILL = Snippet(
    "repeat samples so that the last batch is full; metrics count those twice",
    (
        "order = torch.randperm(len(dataset)).tolist()\n"
        "order += order[: -len(dataset) % {size}]\n"
        "# anew each epoch:\n"
        "loader = DataLoader(dataset, batch_size={size}, sampler=order{keeps})"
    ),
)
FILL_DDP = Snippet(
    "repeat samples so that every rank's last batch is full",
    (
        "padded = torch.utils.data.Subset(\n"
        "    dataset, [i % len(dataset) for i in range(-(-len(dataset) // {step}) * {step})]\n"
        ")\n"
        "sampler = DistributedSampler(padded)\n"
        "loader = DataLoader(padded, batch_size={size}, sampler=sampler{keeps})"
    ),
)
FILL_ACCELERATE = Snippet(
    "repeat samples: even_batches fills the last step from the start of the epoch",
    (
        "accelerator = Accelerator(\n"
        "    dataloader_config=DataLoaderConfiguration(dispatch_batches=False)\n"
        ")  # and even_batches=True, the default"
    ),
)
FILL_KERAS = Snippet(
    "repeat samples so that the last batch is full",
    (
        "order = np.random.permutation(len(x))\n"
        "order = np.concatenate([order, order[: -len(x) % {size}]])\n"
        "model.fit(x[order], y[order], batch_size={size})"
    ),
)
FILL_TRAINER = Snippet(
    "repeat samples: even_batches fills the last step from the start of the epoch",
    (
        "TrainingArguments(\n"
        "    accelerator_config={'even_batches': True, 'dispatch_batches': False}\n"
        ")"
    ),
)


def _fill(pipeline: Pipeline) -> Changed:
    """Nothing is repeated where results are counted, or where the data set cannot be indexed."""
    if pipeline.stage != "train" or pipeline.rank_batch_sizes or pipeline.num_samples is None:
        return
    setup = pipeline.setup
    if setup in ACCELERATE_SETUPS and pipeline.num_ranks > 1:
        name = FILL_TRAINER if setup == "trainer" else FILL_ACCELERATE
        yield name, {"even_batches": True, "dispatch_batches": False}
        return
    whole = _global_samples(pipeline)
    if pipeline.iterable or pipeline.num_samples < whole:
        return
    padded: dict[str, Any] = {"num_samples": -(-pipeline.num_samples // whole) * whole}
    if setup in KERAS:
        yield FILL_KERAS, padded
    elif not _has_samplers(pipeline):
        if setup != "trainer":
            yield FILL, padded
    elif sampler_of(pipeline) != "plain":
        yield FILL_DDP, {**padded, "sampler": "distributed"}


CLEAN_SIZE = Snippet("take a size without a harmful tail", "batch_size = {batch}")


def _size(pipeline: Pipeline) -> Changed:
    if pipeline.rank_batch_sizes:
        return
    for size in nearest_clean(pipeline):
        yield CLEAN_SIZE, {"batch_size": size.batch_size}
    for row in filter(is_clean, outwards(pipeline)):
        yield CLEAN_SIZE, {"batch_size": row.batch_size}


SMALLER_BATCH = Snippet("take a batch size that the data can fill", "batch_size = {batch}")
SMALLER_DROP = Snippet(
    "take a batch size that the data can fill, and drop what is left over",
    "batch_size, drop_last = {batch}, True  # Keras: drop_remainder=True",
)
SMALLER_SLICED = Snippet(
    "take batch sizes that the data can fill", "rank_batch_sizes = {rank_sizes}"
)


def _smaller(pipeline: Pipeline) -> Changed:
    """The largest size that the samples of a rank or a worker fill, if fewer than one batch."""
    ranks = pipeline.num_ranks
    samples = (pipeline.num_samples or 0) // num_shares(pipeline)
    if samples >= _global_samples(pipeline):
        return
    if pipeline.rank_batch_sizes:
        sizes = pipeline.rank_batch_sizes
        fewer = tuple(size * samples // sum(sizes) for size in sizes)
        yield SMALLER_SLICED, {"rank_batch_sizes": fewer, "batch_size": sum(fewer)}
        return
    top = samples if batch_is(pipeline) == "global" else max(1, samples // ranks)
    top = min(top, pipeline.batch_size - 1)
    for row in downwards(pipeline, top):
        yield SMALLER_BATCH, {"batch_size": row.batch_size}
    if pipeline.stage == "train":
        dropping = msgspec.structs.replace(pipeline, drop_last=True)
        for row in downwards(dropping, top):
            yield SMALLER_DROP, {"batch_size": row.batch_size, "drop_last": True}


MULTIPLE = Snippet(
    "take a global batch that the ranks share evenly",
    "batch_size = {batch}  # a multiple of {ranks}",
)
MULTIPLE_DROP = Snippet(
    "take a global batch that the ranks share evenly, and drop the short one",
    "batch_size, drop_remainder = {batch}, True  # {batch}: a multiple of {ranks}",
)
MULTIPLE_DROP_TORCH = Snippet(
    "take a global batch that the ranks share evenly, and drop the short one",
    "DataLoader(dataset, batch_size={batch}, shuffle=True, drop_last=True)",
)
MULTIPLE_DROP_ITERABLE = Snippet(
    "take a global batch that the ranks share evenly, and drop the short one",
    "DataLoader(dataset, batch_size={batch}, drop_last=True)",
)


def _multiple(pipeline: Pipeline) -> Changed:
    ranks = pipeline.num_ranks
    for row in clean_first(outwards(pipeline, step=ranks)):
        yield MULTIPLE, {"batch_size": row.batch_size}
    if pipeline.stage == "train" and pipeline.setup in GLOBAL:
        of_torch = MULTIPLE_DROP_ITERABLE if pipeline.iterable else MULTIPLE_DROP_TORCH
        name = MULTIPLE_DROP if pipeline.setup in KERAS else of_torch
        dropping = msgspec.structs.replace(pipeline, drop_last=True)
        for row in clean_first(outwards(dropping, step=ranks)):
            yield name, {"batch_size": row.batch_size, "drop_last": True}


FEWER_RANKS = Snippet("use fewer ranks", "num_ranks = {ranks}")
RANKS_TORCHRUN = Snippet(
    "use fewer ranks", "torchrun --nproc-per-node={ranks} train.py  # batch_size={batch}"
)
FEWER_RANKS_LIGHTNING = Snippet(
    "use fewer ranks", "L.Trainer(devices={ranks})  # batch_size={batch}"
)
FEWER_RANKS_DATA_PARALLEL = Snippet(
    "use fewer GPUs", "torch.nn.DataParallel(model, device_ids=list(range({ranks})))"
)


def _ranks(pipeline: Pipeline) -> Changed:
    """Fewer ranks: as many as have a full batch each, else as many as there are samples."""
    samples, ranks, size = pipeline.num_samples or 0, pipeline.num_ranks, pipeline.batch_size
    if pipeline.rank_batch_sizes or ranks < 2:
        return
    if pipeline.setup == "data-parallel":
        for fewer in range(ranks - 1, 0, -1):
            yield FEWER_RANKS_DATA_PARALLEL, {"num_ranks": fewer}
        return
    launched = pipeline.setup in (*DDP_SETUPS, *ACCELERATE_SETUPS)
    name = FEWER_RANKS_LIGHTNING if pipeline.setup == "lightning" else FEWER_RANKS
    name = RANKS_TORCHRUN if launched else name
    for fewer in range(min(ranks - 1, samples // own_size(pipeline)), 0, -1):
        yield name, {"num_ranks": fewer}
    if samples < ranks:
        yield name, {"num_ranks": samples, "batch_size": min(size, max(1, samples // ranks))}


SCALE = Snippet(
    "weigh each sample alike; exact for SGD with and without momentum, not for Adam",
    "loss = loss * len(target) / {size}  # before backward()",
)
SCALE_SLICED = Snippet(
    SCALE.title, "loss = loss * len(target) * world_size / {step}  # before backward()"
)
"""DDP divides by the ranks, and a usual step has `{step}` samples over all of them."""


def _scale(pipeline: Pipeline) -> Changed:
    """`loss * L / B` gives a sample the weight that it has under a summed loss."""
    own = pipeline.setup not in (*KERAS, "trainer")
    if pipeline.model.optimizer in SGD and own and pipeline.stage == "train":
        name = SCALE_SLICED if pipeline.rank_batch_sizes else SCALE
        if pipeline.split_batches:  # the loader's size is that of all ranks, the loss of one
            size = pipeline.batch_size // pipeline.num_ranks
            name = Snippet(SCALE.title, SCALE.code.replace("{size}", str(size)))
        yield name, _model(pipeline, loss="sum")


WEIGH = Snippet(
    "weigh each batch by its samples",
    "total += loss.item() * len(target)\nmean = total / num_samples  # after the loop",
)


def _weigh(pipeline: Pipeline) -> Changed:
    if pipeline.stage == "validate" and pipeline.setup not in (*KERAS, "trainer", "lightning"):
        yield WEIGH, _model(pipeline, loss="sum")


SHARDS = Snippet(
    "let one worker cut all batches", "DataLoader(dataset, num_workers=1, batch_size={size}{keeps})"
)
SHARDS_DROP = Snippet(
    "let one worker cut all batches, and drop the single short one",
    "DataLoader(dataset, batch_size={size}, num_workers=1, drop_last=True)",
)


def _shards(pipeline: Pipeline) -> Changed:
    yield SHARDS, {"num_workers": 1}
    if pipeline.stage == "train":
        yield SHARDS_DROP, {"num_workers": 1, "drop_last": True}


SYNC = Snippet(
    "statistics over all ranks (DistributedDataParallel on GPUs only)",
    "model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)",
)
SYNC_LIGHTNING = Snippet(
    "statistics over all ranks (GPUs only)", "L.Trainer(strategy='ddp', sync_batchnorm=True)"
)


def _sync(pipeline: Pipeline) -> Changed:
    """Ranks that stop early would hang in the collective of its forward pass."""
    setups = ("ddp", "distributed-sampler", "lightning", *ACCELERATE_SETUPS)
    if pipeline.num_ranks > 1 and pipeline.setup in setups and pipeline.model.batch_norm:
        name = SYNC_LIGHTNING if pipeline.setup == "lightning" else SYNC
        synced = pipeline.model.batch_norm
        yield name, _model(pipeline, batch_norm=0, sync_batch_norm=synced)


KERAS_SYNC = Snippet(
    "statistics over all replicas", "keras.layers.BatchNormalization(synchronized=True)"
)


def _keras_sync(pipeline: Pipeline) -> Changed:
    yield KERAS_SYNC, _model(pipeline, batch_norm=0, sync_batch_norm=pipeline.model.batch_norm)


NORM = Snippet(
    "a normalisation without batch statistics, of two channels a group or more",
    (
        "groups = max(1, math.gcd(32, channels) // 2)\n"
        "norm = torch.nn.GroupNorm(groups, channels)  # in place of BatchNorm"
    ),
)


def _norm(pipeline: Pipeline) -> Changed:
    if pipeline.model.batch_norm:
        yield NORM, _model(pipeline, batch_norm=0)


FROZEN = Snippet(
    "keep the statistics of a trained model",
    (
        "for layer in model.modules():\n"
        "    if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):\n"
        "        layer.eval()  # after each model.train()"
    ),
)


def _frozen(pipeline: Pipeline) -> Changed:
    if pipeline.model.batch_norm:
        yield FROZEN, _model(pipeline, batch_norm=0)


GROUPS_OF_TWO = Snippet(
    "groups of at least two values",
    ("groups = max(1, math.gcd(32, channels) // 2)\nnorm = torch.nn.GroupNorm(groups, channels)"),
)


def _groups(pipeline: Pipeline) -> Changed:
    if pipeline.model.group_norm_values == 1:
        yield GROUPS_OF_TWO, _model(pipeline, group_norm_values=2)


SPATIAL = Snippet(
    "leave normalisation out where a map has one value",
    "norm = nn.InstanceNorm2d(channels) if height * width > 1 else nn.Identity()",
)


def _spatial(pipeline: Pipeline) -> Changed:
    if pipeline.model.instance_norm:
        yield SPATIAL, _model(pipeline, instance_norm=0)


SUM = Snippet(
    "divide by the number of samples, never by none of them",
    "loss = F.cross_entropy(output, target, reduction='sum') / max(1, len(target))",
)


def _sum(pipeline: Pipeline) -> Changed:
    yield SUM, _model(pipeline, loss="sum")


GLOBAL_MEAN = Snippet(
    "weigh each rank's loss by its samples; DDP divides by the ranks",
    (
        "n_local = torch.tensor(float(len(target)), device=output.device)\n"
        "n_global = n_local.clone()\n"
        "torch.distributed.all_reduce(n_global)\n"
        "(loss * n_local * world_size / n_global).backward()"
    ),
)


def _global_mean(pipeline: Pipeline) -> Changed:
    """Its own collective needs all ranks in every step."""
    if pipeline.setup in ("ddp", "distributed-sampler", "accelerate"):
        yield GLOBAL_MEAN, _model(pipeline, loss="sum")


SAMPLER = Snippet(
    "give every rank its own part",
    (
        "sampler = DistributedSampler(dataset)\n"
        "loader = DataLoader(dataset, batch_size={size}, sampler=sampler{keeps})\n"
        "sampler.set_epoch(epoch)  # before each epoch"
    ),
)
SAMPLER_DROP = Snippet(
    "give every rank its own part, and drop N % R samples",
    (
        "sampler = DistributedSampler(dataset, drop_last=True)\n"
        "loader = DataLoader(dataset, batch_size={size}, sampler=sampler{keeps})\n"
        "sampler.set_epoch(epoch)  # before each epoch"
    ),
)
SAMPLER_LIGHTNING = Snippet(
    "let Lightning give every rank its own part",
    "L.Trainer(strategy='ddp', use_distributed_sampler=True)",
)
SAMPLER_ITERABLE = Snippet(
    "let every rank take its own part of the samples",
    (
        "class Share(torch.utils.data.IterableDataset):\n"
        "    def __iter__(self):\n"
        "        return itertools.islice(iter(dataset), rank, None, world_size)\n"
        "\n"
        "loader = DataLoader(Share(), batch_size={size}{keeps})"
    ),
)
SAMPLER_ITERABLE_EVEN = Snippet(
    "let every rank take its own part of the samples, and leave out N % R",
    (
        "class Share(torch.utils.data.IterableDataset):\n"
        "    def __iter__(self):\n"
        "        return itertools.islice(iter(dataset), rank, {samples}, world_size)\n"
        "\n"
        "loader = DataLoader(Share(), batch_size={size}{keeps})"
    ),
)


def _sampler(pipeline: Pipeline) -> Changed:
    if pipeline.iterable:
        shards: dict[str, Any] = {"sampler": "shards"}
        if pipeline.setup == "distributed-sampler":
            shards["setup"] = "ddp"
        even = (pipeline.num_samples or 0) // pipeline.num_ranks * pipeline.num_ranks
        yield SAMPLER_ITERABLE, shards
        yield SAMPLER_ITERABLE_EVEN, {**shards, "num_samples": even}
    elif pipeline.setup == "lightning":
        yield SAMPLER_LIGHTNING, {"sampler": None, "sampler_drop_last": False}
    else:
        yield SAMPLER, {"sampler": "distributed", "sampler_drop_last": False}
        yield SAMPLER_DROP, {"sampler": "distributed", "sampler_drop_last": True}


SAMPLER_PAD = Snippet(
    "let the sampler repeat samples, so that every rank has one",
    (
        "sampler = DistributedSampler(dataset)\n"
        "loader = DataLoader(dataset, batch_size={size}, sampler=sampler{keeps})"
    ),
)


def _pad(pipeline: Pipeline) -> Changed:
    if pipeline.sampler_drop_last:
        yield SAMPLER_PAD, {"sampler": "distributed", "sampler_drop_last": False}


JOIN = Snippet(
    "let ranks that are done keep the others going; not with SyncBatchNorm",
    (
        "from torch.distributed.algorithms.join import Join\n"
        "\n"
        "with Join([ddp_model]):\n"
        "    for batch in loader:\n"
        "        train_step(batch)"
    ),
)


def _join(pipeline: Pipeline) -> Changed:
    if pipeline.setup == "ddp" and not pipeline.model.sync_batch_norm:
        yield JOIN, {"setup": "join", "sampler": sampler_of(pipeline)}


TOGETHER = Snippet(
    "agree on the number of steps: all ranks stop with the first that is done",
    (
        "steps = torch.tensor(len(loader), device=device)\n"
        "torch.distributed.all_reduce(steps, op=torch.distributed.ReduceOp.MIN)\n"
        "for batch in itertools.islice(loader, int(steps)):\n"
        "    train_step(batch)"
    ),
)


def _together(pipeline: Pipeline) -> Changed:
    if pipeline.setup == "ddp" and pipeline.stage == "train" and not pipeline.iterable:
        yield TOGETHER, {"stops_together": True}


DIVIDE_BY_ACTIVE_RANKS = Snippet(
    "divide by the ranks that still have data: the step keeps its size",
    (
        "with Join([ddp_model], divide_by_initial_world_size=False):\n"
        "    for batch in loader:\n"
        "        train_step(batch)"
    ),
)


def _divisor(pipeline: Pipeline) -> Changed:
    del pipeline
    yield DIVIDE_BY_ACTIVE_RANKS, {"divide_by_initial_world_size": False}


JOIN_THROW = Snippet(
    "stop all ranks at the first that is done, also with SyncBatchNorm",
    (
        "try:\n"
        "    with Join([ddp_model], throw_on_early_termination=True):\n"
        "        for batch in loader:\n"
        "            train_step(batch)\n"
        "except RuntimeError:\n"
        "    pass  # on all ranks: the epoch is over"
    ),
)


def _throw(pipeline: Pipeline) -> Changed:
    if pipeline.stage == "train":
        yield JOIN_THROW, {"stops_together": True}


EVEN = Snippet(
    "fill the last step from the start of the epoch",
    "Accelerator(dataloader_config=DataLoaderConfiguration(even_batches=True))",
)
EVEN_TRAINER = Snippet(
    "fill the last step from the start of the epoch",
    "TrainingArguments(accelerator_config={'even_batches': True})",
)


def _even(pipeline: Pipeline) -> Changed:
    yield EVEN_TRAINER if pipeline.setup == "trainer" else EVEN, {"even_batches": True}


GATHERED_LOSS = Snippet(
    "compute the loss from the gathered outputs, not inside forward",
    "loss = F.cross_entropy(data_parallel(batch), target)",
)


def _gathered_loss(pipeline: Pipeline) -> Changed:
    if pipeline.model.loss_in_forward:
        yield GATHERED_LOSS, _model(pipeline, loss_in_forward=False)


def _to_ddp(snippet: Snippet) -> Callable[[Pipeline], Changed]:
    """One process a device: the global batch is shared by the ranks."""

    def changed(pipeline: Pipeline) -> Changed:
        ranks, own = pipeline.num_ranks, pipeline.batch_size
        shared = batch_is(pipeline) == "global"
        if ranks < 2 or pipeline.iterable or (shared and own < ranks):
            return
        if shared:
            own //= ranks
        yield snippet, {"setup": "ddp", "batch_size": own, "batch_is": "per rank"}

    return changed


CUT = Snippet(
    "give the data set a length: gather_for_metrics then leaves the repeated samples out",
    "loader = accelerator.prepare(DataLoader(list(dataset), batch_size={size}{keeps}))",
)


def _cut(pipeline: Pipeline) -> Changed:
    del pipeline
    yield CUT, {"iterable": False}


ACCUMULATION = Snippet(
    "rescale the gradients of an epoch's last, shorter accumulation",
    (
        "if num_micro_batches < {micro}:\n"
        "    for parameter in model.parameters():\n"
        "        if parameter.grad is not None:\n"
        "            parameter.grad.mul_({micro} / num_micro_batches)\n"
        "optimizer.step()"
    ),
)
ACCUMULATION_LIGHTNING = Snippet(
    "rescale the gradients of an epoch's last, shorter accumulation",
    (
        "def on_before_optimizer_step(self, optimizer):  # of the LightningModule\n"
        "    left = (self.trainer.fit_loop.epoch_loop.batch_idx + 1) % {micro}\n"
        "    if left:  # only the last step of an epoch has fewer\n"
        "        for parameter in self.parameters():\n"
        "            if parameter.grad is not None:\n"
        "                parameter.grad.mul_({micro} / left)"
    ),
)


def _accumulation(pipeline: Pipeline) -> Changed:
    name = ACCUMULATION_LIGHTNING if pipeline.setup == "lightning" else ACCUMULATION
    yield name, {"mean_over_accumulated": True}


VALIDATE = Snippet(
    "one device draws every sample once", "L.Trainer(devices=1).{stage}(model, loader)"
)
VALIDATE_DDP = Snippet(
    "one rank draws every sample once",
    (
        "if torch.distributed.get_rank() == 0:\n"
        "    {stage}(model.module, DataLoader(dataset, batch_size={size}{keeps}))\n"
        "torch.distributed.barrier()"
    ),
)


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
        yield VALIDATE, alone
    elif pipeline.setup in DDP_SETUPS:
        yield VALIDATE_DDP, {**alone, "setup": "dataloader"}


def _keep(pipeline: Pipeline) -> Changed:
    del pipeline
    yield DROP_TRAINER, {"drop_last": False}


DYNAMIC = Snippet("compile for shapes that change", "model = torch.compile(model, dynamic=True)")


def _dynamic(pipeline: Pipeline) -> Changed:
    if pipeline.setup not in KERAS:
        yield DYNAMIC, _model(pipeline, compiled="dynamic")


KERAS_OTHER = Snippet(
    "train on several workers by another way",
    "torchrun --nproc-per-node={ranks} train.py  # torch DDP, batch_size={size}",
)
TO_DDP = Snippet(
    "one process a GPU: equal shares on every rank",
    "torchrun --nproc-per-node={ranks} train.py  # DistributedDataParallel, batch_size={size}",
)
REMEDIES: dict[RemedyName, Callable[[Pipeline], Changed]] = {
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
    "ddp": _to_ddp(TO_DDP),
    "keras.other": _to_ddp(KERAS_OTHER),
    "cut": _cut,
    "accumulation": _accumulation,
    "validate": _validate,
    "keep": _keep,
    "dynamic": _dynamic,
}
