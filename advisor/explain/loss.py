"""How the loss reduces a batch: where it decides what a short last batch does, and what is known.

Which size is chosen does not hang on it: it is measured when the search is over.
"""

from __future__ import annotations

from ...records import Advice, Discovery, Evidence, Loss, LossCheck, RunRecord
from ..measured.epoch_end import pipeline_of, unknown_reason
from ..tails.sweeps import row_of

MOST = 58
"""Samples of the batch that is halved: no usual length of a feature, so that it is cut along the
right axis."""
LEAST = 4


def loss_of(record: RunRecord) -> Loss:
    """What was measured, or a mean: what nearly all scripts have."""
    known = None if record.loss is None else record.loss.reduction
    return known or "mean"


def matters(discovery: Discovery, batch_size: int) -> bool:
    """Whether the cases of the epoch's end are others under another reduction."""
    if unknown_reason(discovery, batch_size):
        return False
    kinds: tuple[Loss, ...] = ("mean", "sum", "contrastive")
    rows = [row_of(pipeline_of(discovery, batch_size, kind)) for kind in kinds]
    return len({row.ids for row in rows}) > 1


def samples_to_halve(record: RunRecord, batch_size: int) -> int | LossCheck:
    """Samples of the batch whose gradient is compared with those of its halves, or why not.

    Args:
        batch_size: the recommended one, which is known to run.
    """
    discovery = record.discovery
    several = record.distribution is not None and record.distribution.world_size > 1
    if discovery is None:
        return LossCheck(reason="the training loop was not found")
    if not discovery.traits.reorders_samples:
        reason = f"no batch can be halved where sizes go in by another door ({discovery.door})"
        return LossCheck(reason=reason)
    if several or discovery.num_ranks > 1 or discovery.num_replicas > 1:
        return LossCheck(reason="the script trains on several ranks")
    if sum(loader.trains for loader in discovery.loaders) > 1:
        return LossCheck(reason="several loaders feed a step")
    if batch_size < LEAST:
        return LossCheck(reason=f"a batch of {batch_size} is too small to be halved")
    return min(batch_size, MOST) // 2 * 2


def step_s_at_most(advice: Advice, num_samples: int) -> float:
    """Seconds that a step of so many samples takes at most: 0 where no step was timed."""
    times = [
        choice.step_s.median
        for choice in advice.sizes
        if choice.batch_size >= num_samples and choice.step_s is not None
    ]
    return min(times, default=0.0)


def evidence_of(check: LossCheck | None) -> tuple[Evidence, ...]:
    """The numbers that tell the reduction; none where it was not told."""
    if check is None or check.reduction is None:
        return ()
    value, metric = check.ratio, "gradient over a mean of its halves'"
    if check.reduction == "contrastive":
        value, metric = check.apart, "share of a gradient that halves do not make"
    return () if value is None else (Evidence(metric=metric, value=value),)
