"""Changes of the script that would save memory in a step, one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...advisor.measured.step_law import SMALLEST
from ...records import OptimizerKind, Variant
from .fake_loop import CannotFakeError, FakeLoop
from .records import Forecast, WhatIf

LORA_RANK = 16
SHARDED_RANKS = 8
"""Ranks that share the model where no other number was asked for."""
MICRO_BATCHES = (2, 4)
"""Micro-batches that a batch is divided into."""
OPTIMIZERS: tuple[OptimizerKind, ...] = (
    "AdamW",
    "AdamW, fused",
    "AdamW, 8-bit state",
    "Adafactor",
    "SGD with momentum",
    "SGD",
)
LEAST_SAVING_SHARE = 0.001
"""Share of the peak below which a difference counts as none."""


class Wanted(NamedTuple):
    """The user's wishes beside the script as it is written.

    Attributes:
        lora: names of layers; empty: those of the repeated blocks.
        lora_rank: of the layers beside them.
        ranks: that share the model; 0: nobody asked.
        expandable: torch's allocator has expandable segments.
        lengths: of samples, beside the script's own.
    """

    lora: tuple[str, ...] = ()
    lora_rank: int = LORA_RANK
    ranks: int = 0
    expandable: bool = False
    lengths: tuple[int, ...] = ()


class _Change(NamedTuple):
    words: str
    size: int
    variant: Variant


def looked_at(
    loop: FakeLoop,
    own: int,
    forecasts: Sequence[Forecast],
    wanted: Wanted,
    sharded: Sequence[Forecast] = (),
) -> tuple[WhatIf, ...]:
    """Each change at the script's own batch size; those that change nothing are left out.

    Args:
        own: the script's batch size.
        forecasts: the script as it is written first, then its variants.
        sharded: over the ranks that were asked for, as far as they were looked at.
    """
    peaks = {each.variant.name: each.trial_at(own).peak_bytes for each in forecasts}
    written = peaks["as written"]
    lines = [
        _line(_Change(_column_words(each.variant, loop.blocks), own, each.variant), peak, written)
        for each, peak in zip(forecasts[1:], list(peaks.values())[1:], strict=True)
    ]
    for change in _changes(loop, own, wanted, alone=not hopeless(forecasts, wanted)):
        known = next((each for each in sharded if each.variant == change.variant), None)
        if known is not None:  # a step of it was made already
            text = loop.changes.get(change.variant.name, "")
            peak = known.trial_at(own).peak_bytes
            lines.append(_line(change._replace(words=_with(change.words, text)), peak, written))
            continue
        try:
            trial, made = loop.step(change.size, change.variant)
        except CannotFakeError as error:
            lines.append(_unknown(change, str(error)))
            continue
        words = _with(change.words, made.change)
        lines.append(_line(change._replace(words=words), trial.peak_bytes, written))
    return tuple(
        line
        for line in lines
        if line.saved_bytes is None or abs(line.saved_bytes) > LEAST_SAVING_SHARE * written
    )


def hopeless(forecasts: Sequence[Forecast], wanted: Wanted) -> bool:
    """Whether ranks are asked for, and no step without them fits a GPU that is asked for."""
    return wanted.ranks > 0 and not any(gpu.high for each in forecasts for gpu in each.gpus)


def _changes(loop: FakeLoop, own: int, wanted: Wanted, *, alone: bool) -> Iterator[_Change]:
    if alone:
        yield from _changes_alone(loop, own, wanted)
    ranks = wanted.ranks or SHARDED_RANKS
    yield _Change(f"FSDP2 over {ranks} ranks, each with this batch", own, Variant(ranks=ranks))


def _changes_alone(loop: FakeLoop, own: int, wanted: Wanted) -> Iterator[_Change]:
    """Those of a single GPU."""
    for parts in MICRO_BATCHES:
        if own % parts == 0 and own // parts >= SMALLEST:
            words = f"{parts} micro-batches of {own // parts}, gradients accumulated"
            yield _Change(words, own // parts, Variant(accumulates=True))
    for kind in OPTIMIZERS:
        yield _Change(f"optimizer: {kind}", own, Variant(optimizer=kind))
    if wanted.lora or loop.blocks:
        rank, names = wanted.lora_rank, wanted.lora
        where = "on " + ", ".join(names) if names else "on the linear layers of the blocks"
        yield _Change(f"LoRA of rank {rank} {where}", own, Variant(lora_rank=rank, lora=names))


def _with(words: str, change: str) -> str:
    return f"{words} ({change})" if change else words


def _column_words(variant: Variant, blocks: str) -> str:
    words = ["bf16 autocast"] * variant.bf16
    words += [f"activation checkpointing of {blocks}"] * variant.checkpointed
    return " and ".join(words)


def _line(change: _Change, peak: int, written: int) -> WhatIf:
    return WhatIf(
        variant=change.variant,
        change=change.words,
        batch_size=change.size,
        peak_bytes=peak,
        saved_bytes=written - peak,
    )


def _unknown(change: _Change, reason: str) -> WhatIf:
    return WhatIf(
        variant=change.variant, change=change.words, batch_size=change.size, reason=reason
    )
