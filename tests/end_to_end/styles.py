"""The plain scripts of tests/scripts: how each is run here, and what is true of it."""

from dataclasses import dataclass

QUICK = ("--no-profile", "--budget", "30s")
LARGEST = ("--no-profile", "--budget", "60s", "--goal", "memory", "--sizes")
"""Of listed sizes the largest is the answer, whatever the machine does meanwhile."""
LOADER = "loader = DataLoader("
"""Begins the line of the only loader, and the line to change, of most of them."""


@dataclass(frozen=True)
class Style:
    """One script.

    Attributes:
        options, arguments: ours and the script's own.
        edits: text of the script to replace, for what only the script itself can tell.
        native, micro_batches: samples per batch, batches per optimizer step.
        steps_per_batch, pool: optimizer steps on each batch, and how many such steps are a cycle.
        num_samples: what an epoch draws.
        loaders: text of the line of each loader's call, in order of creation.
        trains: ordinals of the loaders that train; the first is steered.
        optimizers: name and text of the line of each.
        sampler, num_workers, drop_last, iterable: of the steered loader.
        source: text of the line that the change must name.
        slow: left to the slow tests.
        written: what stands for the number in that line.
    """

    options: tuple[str, ...]
    native: int
    num_samples: int | None
    loaders: tuple[str, ...] = (LOADER,)
    optimizers: tuple[tuple[str, str], ...] = (("Adam", "optimizer ="),)
    source: str = LOADER
    slow: bool = False
    arguments: tuple[str, ...] = ()
    edits: tuple[tuple[str, str], ...] = ()
    micro_batches: int = 1
    steps_per_batch: int = 1
    pool: int = 1
    trains: tuple[int, ...] = (0,)
    sampler: str = "RandomSampler"
    num_workers: int = 0
    drop_last: bool = False
    iterable: bool = False
    written: str = ""


STYLES = {
    "plain": Style(
        options=("--budget", "60s", "--sizes", "8,64,300"),
        native=16,
        num_samples=2000,
    ),
    "positional": Style(
        options=("--budget", "60s", "--sizes", "8,40", "--stacks"),
        native=16,
        num_samples=3000,
        optimizers=(("SGD", "optimizer ="),),
        source="BATCH = 16",
    ),
    "argparse_validate_first": Style(
        options=(*LARGEST, "10,100"),
        arguments=("--batch-size", "20", "--lr", "0.01"),
        native=20,
        num_samples=2000,
        loaders=("train_loader = DataLoader(", "val_loader = DataLoader("),
        optimizers=(("SGD", "optimizer ="),),
        source='add_argument("--batch-size"',
        written="--batch-size",
    ),
    "accumulate_amp": Style(
        options=(*QUICK, "--keep-effective-batch"),
        native=16,
        micro_batches=4,
        num_samples=1280,
        optimizers=(("AdamW", "optimizer ="),),
        slow=True,
    ),
    "iterable_workers": Style(
        options=(*LARGEST, "5,50"),
        native=8,
        num_samples=None,
        slow=True,
        num_workers=2,
        iterable=True,
    ),
    "weighted_sampler": Style(
        options=(*QUICK, "--max-batch", "256", "--budget", "20s"),
        native=16,
        num_samples=1990,
        optimizers=(("AdamW", "optimizer ="),),
        slow=True,
        sampler="WeightedRandomSampler",
        drop_last=True,
    ),
    "batch_sampler": Style(
        options=(*LARGEST, "5,50"),
        native=10,
        num_samples=1500,
        source="buckets = LengthBuckets(",
        slow=True,
        sampler="LengthBuckets",
    ),
    "two_loaders": Style(
        options=(*LARGEST, "4,40"),
        edits=(("supervised = F.", "print('seen', len(x), len(u)); supervised = F."),),
        native=8,
        num_samples=800,
        loaders=("    labelled = DataLoader(", "unlabelled = DataLoader("),
        trains=(0, 1),
        source="    labelled = DataLoader(",
        slow=True,
    ),
    "spawn_workers": Style(
        options=(*LARGEST, "5,50"),
        native=10,
        num_samples=1000,
        optimizers=(("RMSprop", "optimizer ="),),
        source="batch_size=10",
        num_workers=2,
        slow=True,
    ),
    "short_dataset": Style(
        options=(*LARGEST, "13"),
        native=8,
        num_samples=40,
        optimizers=(("SGD", "optimizer ="),),
    ),
    "explicit_iter": Style(
        options=(*QUICK, "--goal", "throughput", "--start", "24", "--max-batch", "96"),
        native=12,
        num_samples=1500,
        slow=True,
    ),
    "class_trainer": Style(
        options=(*LARGEST, "8,48"),
        native=16,
        num_samples=2400,
        loaders=("self.train_loader = DataLoader(", "self.val_loader = DataLoader("),
        optimizers=(("AdamW", "return torch.optim.AdamW("),),
        source='add_argument("--batch-size"',
        written="--batch-size",
    ),
    "gan": Style(
        options=(*LARGEST, "8,80"),
        native=32,
        pool=2,
        num_samples=4000,
        optimizers=(("Adam", "optG ="), ("Adam", "optD =")),
    ),
    "pool": Style(
        options=(*LARGEST, "12,40"),
        native=12,
        pool=8,
        num_samples=1200,
        slow=True,
    ),
    "own_update": Style(
        options=(*LARGEST, "5,50"),
        native=16,
        micro_batches=2,
        num_samples=1600,
        optimizers=(("the script's own update", "loss.backward()"),),
        source='add_argument("--batch-size"',
        slow=True,
    ),
    "tbptt": Style(
        options=(*QUICK, "--sizes", "10,40"),
        native=10,
        steps_per_batch=4,
        num_samples=1000,
        drop_last=True,
        slow=True,
    ),
}
