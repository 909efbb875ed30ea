"""Changes in a training with another batch size: counts that follow, and rules of thumb."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt

import msgspec

from ...records import Discovery, LearningRate, OptimizerInfo, RunRecord, Training, Trial
from .epoch_end import layout_at

LINEAR_RULE = (
    "scale the learning rate in proportion to the effective batch, with a warm-up",
    "Goyal et al. 2017, arXiv 1706.02677 (SGD)",
)
SQUARE_ROOT_RULE = (
    "scale the learning rate with the square root of the effective batch",
    "Malladi et al. 2022, arXiv 2205.10287 (Adam family), as a starting point",
)
KEPT_RULE = ("the effective batch stays, so does the learning rate", "")
UNKNOWN_RULE = ("no rule is known for this optimizer", "")
FAR = 32
"""Beyond so many times the effective batch no rule of thumb is followed: the linear one was shown
for 256 to 8,192 samples (Goyal et al. 2017), and was lost beyond."""
TOO_FAR = (
    "the effective batch grows x{:,.0f}, further than rules of thumb hold: warm up, tune the rate",
    "Goyal et al. 2017, arXiv 1706.02677: x32",
)
_LINEAR_FOR = ("SGD",)
_SQUARE_ROOT_FOR = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad", "SparseAdam")


def with_steps_seen(record: RunRecord) -> RunRecord:
    """The record, whose optimizer steps are unknown where its trials saw other ones.

    A script may cut each batch into parts of a fixed size: a larger one has more steps then. Or it
    gathers batches until it has enough samples: a larger one needs fewer.
    """
    discovery = record.discovery
    if discovery is None or discovery.why_steps_unknown:
        return record
    timed = [trial for trial in record.trials if trial.ran and trial.says_of_size]
    why = _other_parts(discovery, timed) or _other_steps(discovery, timed)
    if not why:
        return record
    unknown = {**discovery.unavailable, "optimizer_steps": why}
    return msgspec.structs.replace(
        record, discovery=msgspec.structs.replace(discovery, unavailable=unknown)
    )


def _other_parts(discovery: Discovery, trials: Iterable[Trial]) -> str:
    """Why nobody knows the batches of an optimizer step; or empty."""
    seen = {
        trial.batch_size: trial.micro_batches
        for trial in trials
        # Turns are of several sizes, and of the two steps of a fit trial one may be odd.
        if trial.micro_batches is not None and trial.kind == "timed"
    }
    others = {size: num for size, num in seen.items() if num != discovery.micro_batches}
    if not others:
        return ""
    size, num = max(others.items())
    return (
        f"batches of an optimizer step: {num} at {size}, {discovery.micro_batches} at "
        f"{discovery.native_batch_size}"
    )


def _other_steps(discovery: Discovery, trials: Iterable[Trial]) -> str:
    """Why nobody knows the optimizer steps on a batch; or empty."""
    seen = {
        trial.batch_size: trial.steps_per_batch
        for trial in trials
        if trial.steps_per_batch is not None
    }
    others = {size: num for size, num in seen.items() if num != discovery.steps_per_batch}
    if not others:
        return ""
    size, num = max(others.items())
    if not num:
        return f"batches of {size} had optimizer steps, and not as many for each"
    return (
        f"optimizer steps on each batch: {num} at {size}, {discovery.steps_per_batch} at "
        f"{discovery.native_batch_size}"
    )


def training_of(
    discovery: Discovery, batch_size: int, *, keep: bool, num_ranks: int = 1
) -> Training:
    """Finds how the training changes with `batch_size`.

    Args:
        keep: the accumulation shall keep the script's effective batch.
        num_ranks: ranks that each take such a batch in the same optimizer step.
    """
    before = discovery.effective_batch
    exact = before // batch_size if before % batch_size == 0 else None
    micro = exact if keep and exact else discovery.micro_batches
    after = batch_size * micro
    rates = (
        _rate(optimizer, after / before) for optimizer in discovery.optimizers if optimizer.trains
    )
    return Training(
        effective_before=before * num_ranks,
        effective_after=after * num_ranks,
        steps_at_most=discovery.primary.num_drawn is not None,
        steps_before=_steps(discovery, discovery.native_batch_size, discovery.micro_batches),
        steps_after=_steps(discovery, batch_size, micro),
        micro_batches=micro,
        keep_accumulation=exact,
        learning_rates=tuple(dict.fromkeys(rates)),
        steps_per_batch=discovery.steps_per_batch,
        axis=discovery.axis,
    )


def _rate(optimizer: OptimizerInfo, factor: float) -> LearningRate:
    before = optimizer.learning_rate
    if factor == 1:
        suggested, rule = before, KEPT_RULE
    elif factor > FAR:
        suggested, rule = None, (TOO_FAR[0].format(factor), TOO_FAR[1])
    elif optimizer.name in _LINEAR_FOR:
        suggested, rule = before and before * factor, LINEAR_RULE
    elif optimizer.name in _SQUARE_ROOT_FOR:
        suggested, rule = before and before * sqrt(factor), SQUARE_ROOT_RULE
    else:
        suggested, rule = None, UNKNOWN_RULE
    return LearningRate(
        optimizer=optimizer.name,
        before=before,
        suggested=suggested,
        rule=rule[0],
        rule_source=rule[1],
    )


def _steps(discovery: Discovery, batch_size: int, micro_batches: int) -> int | None:
    layout = layout_at(discovery, batch_size)
    if layout is None:
        return None
    return -(-max(layout.batches) // micro_batches) * discovery.steps_per_batch
