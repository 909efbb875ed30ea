"""Whether a size may take the place of the script's own: only what was compared with it does.

Two sizes are compared where they were timed under like conditions: in turn in one process, or as
neighbours in the fresh process, or apart, each with clean steps; then the machine may have changed
its speed in between, and the interval is wider by what machines wander.
"""

from __future__ import annotations

from itertools import product
from math import exp
from typing import NamedTuple

from ..records import RunRecord, Spread, Standing, Trial
from . import clean_size
from .confirm import ROUNDS, num_comparisons, ratio_to
from .energy import joules_spread
from .facts import (
    WANDERING,
    best_timed,
    confirmations,
    over_target,
    own_size,
    ran,
    turns_of,
    undisturbed,
    usable,
)
from .rounds import held_up, ratio
from .sizes import allowed, largest_allowed, smallest_sound
from .tail import harmful

MIN_ROUNDS = 4
"""Rounds in turn that make a comparison."""
SURE_ROUNDS = 8
"""From so many rounds on the interval alone decides; with fewer it may be luck."""
LUCK = 0.03
"""What a ratio of few readings must differ by besides."""
CONFIDENCE = 0.98
"""Of the interval that speaks for a change: one in a hundred lies above it by chance."""
LONE = 0.5
"""What one value alone may be off by."""
HEADLINE = 0.5
"""Relative half-width from which on a number says nothing."""


class Comparison(NamedTuple):
    """Throughput of a size over that of the script's own.

    Attributes:
        ratio: middle and interval; above 1 is faster.
        in_turn: whether both were measured in turn, step by step.
        contended: whether what both were measured by waited for a core most of the time. What
            contention adds to a step is no cost of a step, and no counter has all of it.
    """

    ratio: Spread
    in_turn: bool
    contended: bool = False


class Decision(NamedTuple):
    """The size that is recommended, and what speaks for it beside the script's own.

    Attributes:
        size: `None` where none can be recommended.
        considered: the size of the goal, where it is not the one that is recommended.
        ratio: throughput of the goal's size over that of the script's own.
    """

    size: int | None
    standing: Standing
    considered: int | None = None
    ratio: Spread | None = None


def against_own(record: RunRecord, size: int) -> Comparison | None:
    """How a size compares with the script's own, `None` where both were not timed."""
    own = own_size(record)
    if own is None or own == size:
        return None
    on_cpu = record.device is None or record.device.kind == "cpu"
    drift = exp(WANDERING) - 1 if on_cpu else 0.0
    in_turn = ratio(turns_of(record), size, own, CONFIDENCE)
    if in_turn is not None and in_turn.num_samples >= MIN_ROUNDS:
        luck = LUCK if in_turn.num_samples < SURE_ROUNDS else 0.0
        contended = held_up(turns_of(record), size, own)
        return Comparison(_wider(in_turn, luck), in_turn=True, contended=contended)
    again = ratio_to(record, size, own)
    if again is not None:
        middle, low, high = again
        num = num_comparisons(record, size, own)
        if in_turn is None:
            low, high = _reaching_as_far_as_windows(record, size, own, low, high)
        spread = Spread(median=middle, low=low, high=high, num_samples=num, confidence=0.0)
        contended = _any_contended(confirmations(record), size, own)
        wider = _wider(spread, drift if num < ROUNDS else LUCK)
        return Comparison(wider, in_turn=True, contended=contended)
    timed = best_timed(record)
    if size not in timed or own not in timed:
        return None
    mine, theirs = timed[size].samples_per_s, timed[own].samples_per_s
    assert mine is not None
    assert theirs is not None
    apart = Spread(
        median=mine.median / theirs.median,
        low=mine.low / theirs.high,
        high=mine.high / theirs.low,
        num_samples=min(mine.num_samples, theirs.num_samples),
        confidence=min(mine.confidence, theirs.confidence),
    )
    alone = LONE if not (mine.is_interval and theirs.is_interval) else 0.0
    contended = _any_contended([timed[size], timed[own]], size, own)
    return Comparison(_wider(apart, drift + alone), in_turn=False, contended=contended)


def _reaching_as_far_as_windows(
    record: RunRecord, size: int, own: int, low: float, high: float
) -> tuple[float, float]:
    """The ends of a ratio of few windows: each size as fast as a window's interval has it.

    A machine that changes its speed within a window shows it there, and may give two windows that
    agree by luck. Slow ends are left out: among few steps they are the script's own slow ones.
    """
    mine, theirs = (
        [
            trial.samples_per_s
            for trial in undisturbed(
                [trial for trial in confirmations(record) if trial.batch_size == which]
            )
            if trial.samples_per_s is not None
        ]
        for which in (size, own)
    )
    pairs = list(product(mine, theirs))
    return (
        min([low, *(a.median / b.high for a, b in pairs)]),
        max([high, *(a.high / b.median for a, b in pairs)]),
    )


def _any_contended(trials: list[Trial], size: int, own: int) -> bool:
    """Whether one of the two sizes was only ever timed under contention."""
    times = ([one.contended for one in trials if one.batch_size == which] for which in (size, own))
    return any(contended and all(contended) for contended in times)


def standing(record: RunRecord, size: int) -> Standing:
    """What may be said of a size beside the script's own."""
    own = own_size(record)
    if own is None:
        return "own"
    if size == own:
        return "too noisy" if _nothing_is_known(record, own) else "own"
    if not usable(record, own) or _too_large(record, own):
        return "own cannot run"
    for_memory = record.goal.kind == "memory"
    measured = {trial.batch_size for trial in ran(record)} if for_memory else best_timed(record)
    if for_memory and not _is_asked_for(record, own):
        return "better"  # of sizes alone, which need no clock to be compared
    if own not in measured:
        return "not compared" if _is_asked_for(record, own) else "asked for"
    if for_memory:
        return "better"
    if record.goal.kind == "energy":
        return _by_energy(record, size, own)
    compared = against_own(record, size)
    if compared is None:
        return "not compared"
    floor = _floor(record, size, own)
    if compared.contended:
        return "too noisy"
    if compared.ratio.low > floor:
        return "better" if compared.ratio.low > 1 else "as good"
    return "worse" if compared.ratio.high < floor else "too noisy"


def _nothing_is_known(record: RunRecord, own: int) -> bool:
    """Whether the own size was timed beside others, and no comparison tells anything of it."""
    timed = best_timed(record)
    others = [size for size in timed if size != own]
    if record.goal.kind not in ("knee", "throughput") or own not in timed or not others:
        return False
    if not says_nothing(timed[own].samples_per_s):
        return False
    comparisons = [against_own(record, size) for size in others]
    return not any(
        one is not None and not one.contended and (one.in_turn or one.ratio.high < 1)
        for one in comparisons
    )


def _too_large(record: RunRecord, own: int) -> bool:
    """Whether the script's own size was left out because a smaller one takes too much memory."""
    return any(
        trial.batch_size <= own and over_target(record, trial.batch_size) for trial in ran(record)
    )


def _is_asked_for(record: RunRecord, own: int) -> bool:
    """Whether the user's options let the script's own size run."""
    if record.goal.sizes:
        return own in record.goal.sizes
    return own <= largest_allowed(record) and allowed(record, own) == own


def _floor(record: RunRecord, size: int, own: int) -> float:
    """The share of the own size's throughput that a size must surely reach.

    A smaller size is worth its tolerance for the memory that it leaves, one whose epochs end
    cleanly or that suits BatchNorm for that; a larger one has to be faster.
    """
    sound = smallest_sound(record)
    for_another_reason = (
        (record.goal.kind == "knee" and size < own)
        or (harmful(record, own) and not harmful(record, size))
        or own < sound <= size
    )
    if not for_another_reason:
        return 1.0
    tolerance = record.goal.tolerance
    return 1 - (tolerance if record.goal.kind == "knee" else clean_size.cost_of(record))


def _by_energy(record: RunRecord, size: int, own: int) -> Standing:
    """The same by samples per joule, whose intervals are those of the driver's counters."""
    timed = best_timed(record)
    mine, theirs = joules_spread(timed[size]), joules_spread(timed[own])
    if mine is None or theirs is None:
        return "not compared"
    if mine.low > theirs.high:
        return "better"
    return "worse" if mine.high < theirs.low else "too noisy"


def _wider(spread: Spread, share: float) -> Spread:
    return Spread(
        median=spread.median,
        low=spread.low / (1 + share),
        high=spread.high * (1 + share),
        num_samples=spread.num_samples,
        confidence=spread.confidence,
    )


def says_nothing(rate: Spread | None) -> bool:
    """Whether an interval is so wide that its number is no answer."""
    return rate is not None and rate.is_interval and rate.relative_half_width > HEADLINE
