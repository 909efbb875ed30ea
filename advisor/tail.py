"""The last batch of an epoch, by arithmetic; one process."""

from __future__ import annotations

from collections.abc import Iterable

from ..records import Discovery, Tail

NEAR = 0.25
"""Clean sizes are looked for within this relative distance."""
MAX_CLEAN = 3
HARMFUL_WEIGHT = 2.0
"""A sample of the last batch that weighs this many times the others makes the tail harmful."""


def last_batch(discovery: Discovery, batch_size: int) -> int | None:
    """Samples in the last batch of an epoch: 0 without a short one, `None` when unknown.

    Under drop_last there is no short batch. An iterable dataset with several workers makes a
    tail per worker, which its length does not tell.
    """
    loader = discovery.primary
    if loader.num_samples is None or (loader.iterable and loader.num_workers > 1):
        return None
    if loader.drop_last:
        return 0
    return loader.num_samples % batch_size


def tail_of(discovery: Discovery, batch_size: int) -> Tail | str:
    """The layout of the epoch's end, or why it is unknown."""
    loader = discovery.primary
    if loader.num_samples is None:
        return "the dataset has no length"
    if loader.iterable and loader.num_workers > 1:
        return f"each of {loader.num_workers} workers makes a tail of its own"
    num_samples = loader.num_samples
    full, left = divmod(num_samples, batch_size)
    kept = 0 if loader.drop_last else left
    micro_steps = full + (1 if kept else 0)
    return Tail(
        num_samples=num_samples,
        batch_size=batch_size,
        drop_last=loader.drop_last,
        steps_per_epoch=-(-micro_steps // discovery.micro_batches),
        last_batch=kept,
        dropped=left if loader.drop_last else 0,
        weight=batch_size / kept if kept else 1.0,
        nearest_clean=nearest_clean(num_samples, batch_size) if left else (),
    )


def has_harmful_tail(discovery: Discovery, batch_size: int) -> bool:
    """Whether the epoch ends in a batch less than half full, or makes no step at all."""
    tail = tail_of(discovery, batch_size)
    if isinstance(tail, str):
        return False
    return tail.weight > HARMFUL_WEIGHT or tail.steps_per_epoch == 0


def clean_from(discovery: Discovery, sizes: Iterable[int]) -> int | None:
    """The first of these sizes without a harmful tail."""
    return next((one for one in sizes if not has_harmful_tail(discovery, one)), None)


def nearest_clean(num_samples: int, batch_size: int) -> tuple[int, ...]:
    """Sizes near `batch_size` that leave no short batch, else one at least half full.

    Nearest first; sizes that divide the data come before the others.
    """
    low = max(1, round(batch_size * (1 - NEAR)))
    high = min(num_samples, round(batch_size * (1 + NEAR)))
    near = [one for one in range(low, high + 1) if one != batch_size]
    even = [one for one in near if num_samples % one == 0]
    half = [one for one in near if one not in even and num_samples % one >= one / 2]

    def order(sizes: list[int]) -> list[int]:
        return sorted(sizes, key=lambda one: (one % 8 != 0, abs(one - batch_size), one))

    return tuple((order(even) + order(half))[:MAX_CLEAN])
