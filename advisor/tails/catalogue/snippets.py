"""Remedies as code, by name; tails/remedies.py says which of them a pipeline can take, and how."""

from __future__ import annotations

from .drop_snippets import DROP_SNIPPETS

SNIPPETS: dict[str, tuple[str, str]] = {
    **DROP_SNIPPETS,
    "size": ("take a size without a harmful tail", "batch_size = {batch}"),
    "smaller": ("take a batch size that the data can fill", "batch_size = {batch}"),
    "smaller.drop": (
        "take a batch size that the data can fill, and drop what is left over",
        "batch_size, drop_last = {batch}, True  # Keras: drop_remainder=True",
    ),
    "smaller.sliced": (
        "take batch sizes that the data can fill",
        "rank_batch_sizes = {rank_sizes}",
    ),
    "scale": (
        "weigh each sample alike; exact for SGD with and without momentum, not for Adam",
        "loss = loss * len(target) / {size}  # before backward()",
    ),
    "weigh": (
        "weigh each batch by its samples",
        ("total += loss.item() * len(target)\nmean = total / num_samples  # after the loop"),
    ),
    "shards": (
        "let one worker cut all batches",
        "DataLoader(dataset, num_workers=1, batch_size={size}{keeps})",
    ),
    "shards.drop": (
        "let one worker cut all batches, and drop the single short one",
        "DataLoader(dataset, batch_size={size}, num_workers=1, drop_last=True)",
    ),
    "norm": (
        "a normalisation without batch statistics, of two channels a group or more",
        (
            "groups = max(1, math.gcd(32, channels) // 2)\n"
            "norm = torch.nn.GroupNorm(groups, channels)  # in place of BatchNorm"
        ),
    ),
    "groups": (
        "groups of at least two values",
        (
            "groups = max(1, math.gcd(32, channels) // 2)\n"
            "norm = torch.nn.GroupNorm(groups, channels)"
        ),
    ),
    "frozen": (
        "keep the statistics of a trained model",
        (
            "for layer in model.modules():\n"
            "    if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):\n"
            "        layer.eval()  # after each model.train()"
        ),
    ),
    "sync": (
        "statistics over all ranks (DistributedDataParallel on GPUs only)",
        "model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)",
    ),
    "sync.lightning": (
        "statistics over all ranks (GPUs only)",
        "L.Trainer(strategy='ddp', sync_batchnorm=True)",
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
            "loader = DataLoader(dataset, batch_size={size}, sampler=sampler{keeps})\n"
            "sampler.set_epoch(epoch)  # before each epoch"
        ),
    ),
    "sampler.drop": (
        "give every rank its own part, and drop N % R samples",
        (
            "sampler = DistributedSampler(dataset, drop_last=True)\n"
            "loader = DataLoader(dataset, batch_size={size}, sampler=sampler{keeps})\n"
            "sampler.set_epoch(epoch)  # before each epoch"
        ),
    ),
    "sampler.pad": (
        "let the sampler repeat samples, so that every rank has one",
        (
            "sampler = DistributedSampler(dataset)\n"
            "loader = DataLoader(dataset, batch_size={size}, sampler=sampler{keeps})"
        ),
    ),
    "sampler.lightning": (
        "let Lightning give every rank its own part",
        "L.Trainer(strategy='ddp', use_distributed_sampler=True)",
    ),
    "sampler.iterable": (
        "let every rank take its own part of the samples",
        (
            "class Share(torch.utils.data.IterableDataset):\n"
            "    def __iter__(self):\n"
            "        return itertools.islice(iter(dataset), rank, None, world_size)\n"
            "\n"
            "loader = DataLoader(Share(), batch_size={size}{keeps})"
        ),
    ),
    "sampler.iterable.even": (
        "let every rank take its own part of the samples, and leave out N % R",
        (
            "class Share(torch.utils.data.IterableDataset):\n"
            "    def __iter__(self):\n"
            "        return itertools.islice(iter(dataset), rank, {samples}, world_size)\n"
            "\n"
            "loader = DataLoader(Share(), batch_size={size}{keeps})"
        ),
    ),
    "ranks": (
        "use fewer ranks",
        "num_ranks = {ranks}",
    ),
    "ranks.torchrun": (
        "use fewer ranks",
        "torchrun --nproc-per-node={ranks} train.py  # batch_size={batch}",
    ),
    "ranks.lightning": (
        "use fewer ranks",
        "L.Trainer(devices={ranks})  # batch_size={batch}",
    ),
    "ranks.data-parallel": (
        "use fewer GPUs",
        "torch.nn.DataParallel(model, device_ids=list(range({ranks})))",
    ),
    "together": (
        "agree on the number of steps: all ranks stop with the first that is done",
        (
            "steps = torch.tensor(len(loader), device=device)\n"
            "torch.distributed.all_reduce(steps, op=torch.distributed.ReduceOp.MIN)\n"
            "for batch in itertools.islice(loader, int(steps)):\n"
            "    train_step(batch)"
        ),
    ),
    "join": (
        "let ranks that are done keep the others going; not with SyncBatchNorm",
        (
            "from torch.distributed.algorithms.join import Join\n"
            "\n"
            "with Join([ddp_model]):\n"
            "    for batch in loader:\n"
            "        train_step(batch)"
        ),
    ),
    "join.divisor": (
        "divide by the ranks that still have data: the step keeps its size",
        (
            "with Join([ddp_model], divide_by_initial_world_size=False):\n"
            "    for batch in loader:\n"
            "        train_step(batch)"
        ),
    ),
    "join.throw": (
        "stop all ranks at the first that is done, also with SyncBatchNorm",
        (
            "try:\n"
            "    with Join([ddp_model], throw_on_early_termination=True):\n"
            "        for batch in loader:\n"
            "            train_step(batch)\n"
            "except RuntimeError:\n"
            "    pass  # on all ranks: the epoch is over"
        ),
    ),
    "even": (
        "fill the last step from the start of the epoch",
        "Accelerator(dataloader_config=DataLoaderConfiguration(even_batches=True))",
    ),
    "even.trainer": (
        "fill the last step from the start of the epoch",
        "TrainingArguments(accelerator_config={'even_batches': True})",
    ),
    "multiple": (
        "take a global batch that the ranks share evenly",
        "batch_size = {batch}  # a multiple of {ranks}",
    ),
    "multiple.drop": (
        "take a global batch that the ranks share evenly, and drop the short one",
        "batch_size, drop_remainder = {batch}, True  # {batch}: a multiple of {ranks}",
    ),
    "multiple.drop.torch": (
        "take a global batch that the ranks share evenly, and drop the short one",
        "DataLoader(dataset, batch_size={batch}, shuffle=True, drop_last=True)",
    ),
    "multiple.drop.iterable": (
        "take a global batch that the ranks share evenly, and drop the short one",
        "DataLoader(dataset, batch_size={batch}, drop_last=True)",
    ),
    "gathered loss": (
        "compute the loss from the gathered outputs, not inside forward",
        "loss = F.cross_entropy(data_parallel(batch), target)",
    ),
    "ddp": (
        "one process a GPU: equal shares on every rank",
        "torchrun --nproc-per-node={ranks} train.py  # DistributedDataParallel, batch_size={size}",
    ),
    "cut": (
        "give the data set a length: gather_for_metrics then leaves the repeated samples out",
        "loader = accelerator.prepare(DataLoader(list(dataset), batch_size={size}{keeps}))",
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
    "accumulation.lightning": (
        "rescale the gradients of an epoch's last, shorter accumulation",
        (
            "def on_before_optimizer_step(self, optimizer):  # of the LightningModule\n"
            "    left = self.trainer.num_training_batches % {micro}\n"
            "    if left and self.trainer.is_last_batch:\n"
            "        for parameter in self.parameters():\n"
            "            if parameter.grad is not None:\n"
            "                parameter.grad.mul_({micro} / left)"
        ),
    ),
    "validate": (
        "one device draws every sample once",
        "L.Trainer(devices=1).{stage}(model, loader)",
    ),
    "validate.ddp": (
        "one rank draws every sample once",
        (
            "if torch.distributed.get_rank() == 0:\n"
            "    {stage}(model.module, DataLoader(dataset, batch_size={size}{keeps}))\n"
            "torch.distributed.barrier()"
        ),
    ),
    "keras.sync": (
        "statistics over all replicas",
        "keras.layers.BatchNormalization(synchronized=True)",
    ),
    "keras.other": (
        "train on several workers by another way",
        "torchrun --nproc-per-node={ranks} train.py  # torch DDP, batch_size={size}",
    ),
    "dynamic": (
        "compile for shapes that change",
        "model = torch.compile(model, dynamic=True)",
    ),
}
