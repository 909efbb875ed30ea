"""Remedies as code, for the framework of the pipeline. The two classic ones come first:
dropping the short batch, and repeating samples to fill it.
"""

from __future__ import annotations

from ...records import Fix, Pipeline
from .pipeline import ACCELERATE, DDP, KERAS

SGD = ("SGD", "sgd", "Nesterov")
"""Optimizers for which scaling the loss scales the step (Adam divides it out again)."""

_LOADER_DROP = "DataLoader(dataset, batch_size={size}, shuffle=True, drop_last=True)"
_SNIPPETS: dict[str, tuple[str, str]] = {
    "drop": ("drop the short batch; with shuffling nothing is lost over epochs", _LOADER_DROP),
    "drop.ddp": (
        "drop on both levels: the sampler drops N % R, the loader what is left",
        (
            "sampler = DistributedSampler(dataset, drop_last=True)\n"
            "loader = DataLoader(dataset, batch_size={size}, sampler=sampler, drop_last=True)"
        ),
    ),
    "drop.lightning": (
        "give the loader a sampler of your own and drop on both levels",
        (
            "trainer = L.Trainer(strategy='ddp', use_distributed_sampler=False)\n"
            "# in train_dataloader(), where the ranks are known:\n"
            "sampler = DistributedSampler(dataset, drop_last=True)\n"
            "DataLoader(dataset, batch_size={size}, sampler=sampler, drop_last=True)"
        ),
    ),
    "drop.accelerate": (
        "drop before prepare: every rank then makes full batches of distinct samples",
        (
            "loader = DataLoader(dataset, batch_size={size}, shuffle=True, drop_last=True)\n"
            "loader = accelerator.prepare(loader)"
        ),
    ),
    "drop.trainer": (
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
    ),
    "drop.keras": (
        "drop the short batch, or cut an array to whole batches",
        (
            "dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(10_000)\n"
            "dataset = dataset.batch({size}, drop_remainder=True)\n"
            "# arrays: n = len(x) // {size} * {size}; model.fit(x[:n], y[:n], batch_size={size})"
        ),
    ),
    "fill": (
        "repeat samples so that the last batch is full; metrics count those twice",
        (
            "order = torch.randperm(len(dataset)).tolist()\n"
            "order += order[: -len(dataset) % {size}]\n"
            "loader = DataLoader(dataset, batch_size={size}, sampler=order)  # anew each epoch"
        ),
    ),
    "fill.ddp": (
        "repeat samples so that every rank's last batch is full",
        (
            "padded = torch.utils.data.Subset(\n"
            "    dataset, [i % len(dataset) for i in range(-(-len(dataset) // {step}) * {step})]\n"
            ")\n"
            "loader = DataLoader(padded, batch_size={size}, sampler=DistributedSampler(padded))"
        ),
    ),
    "fill.accelerate": (
        "repeat samples: even_batches fills the last step from the start of the epoch",
        (
            "accelerator = Accelerator(\n"
            "    dataloader_config=DataLoaderConfiguration(dispatch_batches=False)\n"
            ")  # and even_batches=True, the default"
        ),
    ),
    "fill.keras": (
        "repeat samples so that the last batch is full",
        (
            "order = np.random.permutation(len(x))\n"
            "order = np.concatenate([order, order[: -len(x) % {size}]])\n"
            "model.fit(x[order], y[order], batch_size={size})"
        ),
    ),
    "size": ("take a size without a harmful tail", "batchadvisor tails --sweep {arguments}"),
    "smaller": ("take a batch size that the data can fill", "batch_size={at_most}"),
    "scale": (
        "weigh each sample alike; exact for SGD with and without momentum, not for Adam",
        "(loss * len(target) / {size}).backward()",
    ),
    "shards": (
        "make each worker's share a multiple of the batch size, or use one worker",
        "DataLoader(dataset, batch_size={size}, num_workers=1)",
    ),
    "norm": (
        "a normalisation without batch statistics",
        "torch.nn.GroupNorm(num_groups=32, num_channels=channels)  # in place of BatchNorm2d",
    ),
    "frozen": (
        "keep the statistics of a trained model",
        (
            "for layer in model.modules():\n"
            "    if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):\n"
            "        layer.eval()"
        ),
    ),
    "sync": (
        "statistics over all ranks (DistributedDataParallel on GPUs only)",
        "model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)",
    ),
    "spatial": (
        "leave normalisation out where a map has one value",
        "norm = nn.InstanceNorm2d(channels) if height * width > 1 else nn.Identity()",
    ),
    "sum": (
        "divide by the number of samples, never by none of them",
        "loss = F.cross_entropy(output, target, reduction='sum') / max(1, len(target))",
    ),
    "global mean": (
        "weigh each rank's loss by its samples; DDP divides by the ranks",
        (
            "n_local = torch.tensor(float(len(target)), device=output.device)\n"
            "n_global = n_local.clone()\n"
            "torch.distributed.all_reduce(n_global)\n"
            "(loss * n_local * world_size / n_global).backward()"
        ),
    ),
    "sampler": (
        "give every rank its own part",
        (
            "sampler = DistributedSampler(dataset)\n"
            "loader = DataLoader(dataset, batch_size={size}, sampler=sampler)\n"
            "sampler.set_epoch(epoch)  # before each epoch"
        ),
    ),
    "join": (
        "let ranks that are done keep the others going; not with SyncBatchNorm",
        (
            "with torch.distributed.algorithms.join.Join([ddp_model]):\n"
            "    for batch in loader:\n"
            "        ..."
        ),
    ),
    "join.divisor": (
        "divide by the ranks that still have data: the step keeps its size",
        "with Join([ddp_model], divide_by_initial_world_size=False):\n    ...",
    ),
    "join.throw": (
        "with a collective in the forward pass: stop all ranks at the first that is done",
        "with Join([ddp_model], throw_on_early_termination=True):\n    ...",
    ),
    "join.accelerate": (
        "let ranks that are done keep the others going (GPUs; without effect on CPUs)",
        "with accelerator.join_uneven_inputs([model]):\n    for batch in loader:\n        ...",
    ),
    "even": (
        "fill the last step from the start of the epoch",
        "Accelerator(dataloader_config=DataLoaderConfiguration(even_batches=True))",
    ),
    "multiple": (
        "take a global batch that the ranks share evenly",
        "batch_size = {multiple}  # a multiple of {ranks}",
    ),
    "gathered loss": (
        "compute the loss from the gathered outputs, not inside forward",
        "loss = F.cross_entropy(data_parallel(batch), target)",
    ),
    "ddp": (
        "one process a GPU: equal shares on every rank",
        "torchrun --nproc-per-node={ranks} train.py  # with DistributedDataParallel",
    ),
    "cut": (
        "give the data set a length, or cut the repeated samples by hand",
        (
            "outputs = accelerator.gather(outputs)\n"
            "outputs = outputs[: num_samples - num_seen]  # the rest are repeated samples"
        ),
    ),
    "accumulation": (
        "rescale the gradients of an epoch's last, shorter accumulation",
        (
            "if num_micro_batches < {micro}:\n"
            "    for parameter in model.parameters():\n"
            "        if parameter.grad is not None:\n"
            "            parameter.grad.mul_({micro} / num_micro_batches)\n"
            "optimizer.step()"
        ),
    ),
    "validate": (
        "validate on one device, or with metrics that count samples",
        "L.Trainer(devices=1).validate(model)",
    ),
    "keras.sync": (
        "statistics over all replicas",
        "keras.layers.BatchNormalization(synchronized=True)",
    ),
    "keras.other": (
        "train on several workers by another way",
        "torchrun --nproc-per-node={ranks} train.py  # torch DDP; or keras.distribution on JAX",
    ),
    "dynamic": (
        "compile for shapes that change",
        "model = torch.compile(model, dynamic=True)",
    ),
}


def fixes(pipeline: Pipeline, *names: str, size: int | None = None) -> tuple[Fix, ...]:
    """Remedies by name; `drop` and `fill` become those of the framework."""
    values = _values(pipeline, size or pipeline.batch_size)
    found = []
    for name in names:
        if name == "scale" and not _is_sgd(pipeline):
            continue
        title, snippet = _SNIPPETS[_own(name, pipeline)]
        for key, value in values.items():
            snippet = snippet.replace("{" + key + "}", value)
        found.append(Fix(title=title, snippet=snippet))
    return tuple(found)


def remedies() -> tuple[str, ...]:
    """The names that `fixes` takes."""
    return tuple(_SNIPPETS)


def _own(name: str, pipeline: Pipeline) -> str:
    if name not in ("drop", "fill"):
        return name
    setup = pipeline.setup
    if setup in KERAS:
        kind = ".keras"
    elif setup in ACCELERATE:
        kind = f".{setup}" if name == "drop" else ".accelerate"
    elif setup == "lightning" and pipeline.num_ranks > 1:
        kind = ".lightning" if name == "drop" else ".ddp"
    else:
        kind = ".ddp" if setup in DDP and pipeline.num_ranks > 1 else ""
    return name + kind


def _is_sgd(pipeline: Pipeline) -> bool:
    """Whether the optimizer is known to be one that a scaled loss scales."""
    return pipeline.model.optimizer in SGD


def _values(pipeline: Pipeline, size: int) -> dict[str, str]:
    ranks = pipeline.num_ranks
    samples = pipeline.num_samples
    nearest = max(1, round(size / ranks)) * ranks
    return {
        "size": str(size),
        "step": str(size * ranks),
        "ranks": str(ranks),
        "micro": str(pipeline.micro_batches),
        "multiple": str(nearest),
        "at_most": str(size if samples is None else max(1, samples // ranks)),
        "arguments": f"--samples {samples} --batch-size {size} --ranks {ranks} "
        f"--setup {pipeline.setup}",
    }
