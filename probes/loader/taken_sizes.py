"""How a batch sampler of the script's own takes a size, as experiments tell."""

from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple

from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from .batch_sampler import follows_own_argument, follows_own_size, names_size
from .budgets import LOOKED_AT, Budget, budget_of
from .sample_lengths import SampleLengths

LARGE = 4
"""How many times its own size a batch sampler is tried with, where the data suffice."""
LARGEST_SHARE = 16
"""Batches of that size that the data must hold: groups of samples have their own short ends."""
LEAST_LOOKED_AT = 4
"""Batches of one length that tell that all have it."""


class Taken(NamedTuple):
    """How sizes get into a batch sampler.

    Attributes:
        remakes: it is made anew for each size.
        budget: sizes are budgets, and these get in so.
        approximate: it takes none: its batches are flattened and cut again.
    """

    remakes: bool = False
    budget: Budget | None = None
    approximate: bool = False


def how_taken(
    native: Any, size: int, num_samples: int, lengths: SampleLengths | None, *, is_list: bool = True
) -> Taken:
    """Finds how a sampler takes sizes: by its attribute, made anew, by a budget, or not at all.

    Args:
        size: of its own batches.
        num_samples: of an epoch, 0 if unknown.
        lengths: of its samples; `None` where batches come out of order, so that no budget can be
            told by what arrives.
        is_list: it yields lists of indices.
    """
    if type(native) is BatchSampler:
        return Taken()
    # Another size than its own, or one that ignores it would seem to follow.
    sizes = [size + 1]
    if num_samples >= size * LARGE * LARGEST_SHARE:
        sizes.append(size * LARGE)  # a budget of tokens may bind beside the size
    if is_list and names_size(native) and all(follows_own_size(native, each) for each in sizes):
        return Taken()
    if is_list and all(follows_own_argument(native, each) for each in sizes):
        return Taken(remakes=True)
    budget = None if lengths is None else budget_of(native, lengths, is_list=is_list)
    return Taken(budget=budget, approximate=budget is None)


def part_of(native: Any, size: int, num_samples: int) -> int:
    """Samples of each batch of a sampler that names a size and yields the same part of it each
    time, as of a batch that ranks share; else the size itself.

    Args:
        num_samples: of an epoch; of fewer than a batch nothing is told.
    """
    try:
        *whole, _ = [len(batch) for batch in islice(iter(native), LOOKED_AT + 1)]
    except Exception:  # noqa: BLE001  the script's own code, or no batch
        return size
    if num_samples < size or len(whole) < LEAST_LOOKED_AT or len(set(whole)) > 1:
        return size
    return whole[0] if whole[0] and size % whole[0] == 0 else size


def batches_of_a_sampler(loader: Any) -> bool:
    """Whether batches are cut by a sampler of the script's own, without a batch sampler.

    The data set makes a batch of each of its items then.
    """
    own = type(loader.sampler) not in (RandomSampler, SequentialSampler)
    return loader.batch_sampler is None and hasattr(loader.sampler, "__iter__") and own
