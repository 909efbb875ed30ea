"""Which sizes are worth trying: round ones, within the limits of the goal and the data."""

from __future__ import annotations

from ..records import RunRecord
from .tail import own_samples
from .tails.rules import SMALL_BATCH_NORM

MIN_STEPS_AN_EPOCH = 10
"""Fewer optimizer steps an epoch make a poor training; sizes are kept below that."""


def round_size(size: float) -> int:
    """The nearest size that kernels like: multiples of 8 from 32 on, of 4 from 16 on.

    >>> [round_size(one) for one in (0.3, 5.4, 13.2, 30, 101, 1000.7)]
    [1, 5, 13, 32, 104, 1000]
    """
    step = 8 if size >= 30 else 4 if size >= 15 else 1
    return max(1, round(size / step) * step)


def effective_batch(record: RunRecord) -> int:
    """Samples per optimizer step as the script is written."""
    assert record.discovery is not None
    return record.discovery.native_batch_size * record.discovery.micro_batches


def largest_allowed(record: RunRecord) -> int:
    """The upper bound that the goal and the data set, whatever the memory says."""
    bounds = [1 << 24]
    if record.goal.max_batch is not None:
        bounds.append(record.goal.max_batch)
    if record.discovery is not None:
        if record.discovery.primary.num_samples is not None:
            # A larger batch than the data would make no step under drop_last, one otherwise.
            bounds.append(max(1, record.discovery.primary.num_samples))
        if record.goal.keep_effective_batch:
            bounds.append(effective_batch(record))
        steps_bound = bound_by_steps(record)
        if steps_bound is not None:
            bounds.append(steps_bound)
    return min(bounds)


def bound_by_steps(record: RunRecord) -> int | None:
    """The size that leaves MIN_STEPS_AN_EPOCH optimizer steps, never below the script's own.

    Tiny models get faster up to the whole data set in one batch, which is no training. The bound
    does not hold where the largest size is asked for, or `--max-batch` names one.
    """
    discovery = record.discovery
    if discovery is None or record.goal.kind == "memory" or record.goal.max_batch is not None:
        return None
    num_samples = own_samples(discovery)
    if num_samples is None:
        return None
    steps = num_samples * discovery.steps_per_batch
    # A script that steps after so many samples needs fewer batches for it, the larger they are.
    seen = [one.micro_batches for one in record.trials if one.ran and one.kind == "timed"]
    fewest = min([discovery.micro_batches, *filter(None, seen)])
    most = steps // (MIN_STEPS_AN_EPOCH * fewest)
    return max(most, discovery.native_batch_size)


def smallest_allowed(record: RunRecord) -> int:
    """The lower bound: BatchNorm cannot train on one value per channel."""
    return 2 if has_batch_norm(record) else 1


def smallest_sound(record: RunRecord) -> int:
    """The smallest size worth recommending: with BatchNorm not below 8, unless the script's own
    size is.
    """
    if not has_batch_norm(record) or record.discovery is None:
        return 1
    return min(SMALL_BATCH_NORM, record.discovery.native_batch_size)


def has_batch_norm(record: RunRecord) -> bool:
    """Whether the model has BatchNorm layers that are not synchronised."""
    layers = record.discovery.norm_layers if record.discovery is not None else None
    return layers is not None and layers.batch_norm > 0


def allowed(record: RunRecord, size: float, *, up: bool = False) -> int:
    """The nearest size that may be tried: rounded, bounded, a divisor where the batch is kept.

    Args:
        up: prefer the next larger divisor over the nearest.
    """
    top = largest_allowed(record)
    if record.goal.keep_effective_batch and record.discovery is not None:
        whole = effective_batch(record)
        divisors = [one for one in range(1, top + 1) if whole % one == 0]
        if up:
            return next((one for one in divisors if one >= size), divisors[-1])
        return min(divisors, key=lambda one: (abs(one - size), one))
    return min(top, round_size(size))
