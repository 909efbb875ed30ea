"""Remedies as code that drop the short batch, or fill it."""

from __future__ import annotations

DROP_SNIPPETS: dict[str, tuple[str, str]] = {
    "drop": (
        "drop the short batch; with shuffling nothing is lost over epochs",
        "DataLoader(dataset, batch_size={size}, shuffle=True, drop_last=True)",
    ),
    "drop.iterable": (
        "drop the short batch; which samples that leaves out, the dataset's own order decides",
        "DataLoader(dataset, batch_size={size}, drop_last=True)",
    ),
    "drop.ddp": (
        "drop on both levels: the sampler drops N % R, the loader what is left",
        (
            "sampler = DistributedSampler(dataset, drop_last=True)\n"
            "loader = DataLoader(dataset, batch_size={size}, sampler=sampler, drop_last=True)"
        ),
    ),
    "drop.sampler": (
        "drop N % R samples in the sampler: every rank's batches are then full",
        (
            "sampler = DistributedSampler(dataset, drop_last=True)\n"
            "loader = DataLoader(dataset, batch_size={size}, sampler=sampler)"
        ),
    ),
    "drop.sliced": (
        "drop the short step, of which some ranks have less than their share",
        (
            "starts = range(0, len(order) // {step} * {step}, {step})  # order: of this epoch\n"
            "first = sum(rank_batch_sizes[:rank])\n"
            "batches = [order[i + first :][: rank_batch_sizes[rank]] for i in starts]\n"
            "loader = DataLoader(dataset, batch_sampler=batches)"
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
    "drop.accelerate.iterable": (
        "drop before prepare: every rank then makes full batches of distinct samples",
        (
            "loader = DataLoader(dataset, batch_size={size}, drop_last=True)\n"
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
            "# anew each epoch:\n"
            "loader = DataLoader(dataset, batch_size={size}, sampler=order{keeps})"
        ),
    ),
    "fill.ddp": (
        "repeat samples so that every rank's last batch is full",
        (
            "padded = torch.utils.data.Subset(\n"
            "    dataset, [i % len(dataset) for i in range(-(-len(dataset) // {step}) * {step})]\n"
            ")\n"
            "sampler = DistributedSampler(padded)\n"
            "loader = DataLoader(padded, batch_size={size}, sampler=sampler{keeps})"
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
    "fill.trainer": (
        "repeat samples: even_batches fills the last step from the start of the epoch",
        (
            "TrainingArguments(\n"
            "    accelerator_config={'even_batches': True, 'dispatch_batches': False}\n"
            ")"
        ),
    ),
}
