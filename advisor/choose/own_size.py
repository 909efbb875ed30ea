"""Whether a size may take the place of the script's own: only what was compared with it does.

Two sizes are compared where they were timed under like conditions: in turn in one process, or as
neighbours in the fresh process, or apart, each with clean steps; then the machine may have changed
its speed in between, and the interval is wider by what machines wander.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import exp
from typing import NamedTuple

from ...records import Goal, Spread, Standing, Trial
from ...spread import ratio_of
from ..measured.energy import joules_spread
from ..measured.measurements import Measurements
from ..measured.sizes import allowed, largest_allowed, smallest_sound
from ..measured.trials import WANDERING, says_nothing, undisturbed
from ..measured.turns_model import chained_ratio, ratio
from . import clean_size
from .finalists import ROUNDS, num_comparisons, ratio_to

MIN_ROUNDS = 4
"""Rounds in turn that make a comparison."""
SURE_ROUNDS = 8
"""From so many rounds on the interval alone decides; with fewer it may be luck."""
LUCK = 0.03
"""What a ratio of few readings must differ by besides."""
CONFIDENCE = 0.98
"""Of the interval that speaks for a change: one in a hundred lies above it by chance."""
SLOWER = 0.02
"""A smaller size that costs more than this of the own one's throughput is no gain."""
MUCH_SMALLER = 0.5
"""A smaller size that is not surely faster is worth a change up to this share of the own one."""
LONE = 0.5
"""What one value alone may be off by."""


class Comparison(NamedTuple):
    """Throughput of a size over that of the script's own.

    Attributes:
        ratio: middle and interval; above 1 is faster.
        in_turn: whether both were measured in turn, step by step.
        contended: whether windows alone compare the two, and one only ever ran beside others. What
            spinning threads add to a step is no waiting, and much the same for all sizes: it makes
            a larger one look better than it is, and nothing tells how much.
    """

    ratio: Spread
    in_turn: bool
    contended: bool = False


def against_own(measurements: Measurements, size: int) -> Comparison | None:
    """How a size compares with the script's own, `None` where both were not timed."""
    own = measurements.own_size
    if own is None or own == size:
        return None
    device = measurements.record.device
    on_cpu = device is None or device.kind == "cpu"
    drift = exp(WANDERING) - 1 if on_cpu else 0.0
    in_turn = ratio(measurements.turns, size, own, CONFIDENCE)
    if in_turn is not None and in_turn.num_samples >= MIN_ROUNDS:
        luck = LUCK if in_turn.num_samples < SURE_ROUNDS else 0.0
        return Comparison(_wider(in_turn, luck), in_turn=True)
    again = ratio_to(measurements, size, own)
    chained = chained_ratio(measurements.turns, size, own, CONFIDENCE) if in_turn is None else None
    if chained is not None and chained.num_samples >= MIN_ROUNDS and again is None:
        return Comparison(_wider(chained, LUCK), in_turn=True)
    if again is not None:
        middle, low, high = again
        num = num_comparisons(measurements, size, own)
        if in_turn is None:
            low, high = _reaching_as_far_as_windows(measurements, size, own, low, high)
        spread = Spread(median=middle, low=low, high=high, num_samples=num, confidence=0.0)
        contended = in_turn is None and _any_contended(measurements.confirmations, size, own)
        wider = _wider(spread, drift if num < ROUNDS else LUCK)
        return Comparison(wider, in_turn=True, contended=contended)
    timed = measurements.best_timed
    if size not in timed or own not in timed:
        return None
    mine, theirs = timed[size].samples_per_s, timed[own].samples_per_s
    assert mine is not None
    assert theirs is not None
    apart = ratio_of(mine, theirs)
    alone = LONE if not (mine.is_interval and theirs.is_interval) else 0.0
    contended = _any_contended([timed[size], timed[own]], size, own)
    return Comparison(_wider(apart, drift + alone), in_turn=False, contended=contended)


def _reaching_as_far_as_windows(
    measurements: Measurements, size: int, own: int, low: float, high: float
) -> tuple[float, float]:
    """The ends of a ratio of few windows: each size as fast as a window's interval has it.

    A machine that changes its speed within a window shows it there, and may give two windows that
    agree by luck. Slow ends are left out: among few steps they are the script's own slow ones.
    """
    mine, theirs = (
        [
            trial.samples_per_s
            for trial in undisturbed(
                [trial for trial in measurements.confirmations if trial.batch_size == which]
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


def _any_contended(trials: Sequence[Trial], size: int, own: int) -> bool:
    """Whether one of the two sizes was only ever timed under contention."""
    times = (
        [trial.contended for trial in trials if trial.batch_size == which] for which in (size, own)
    )
    return any(contended and all(contended) for contended in times)


def standing(measurements: Measurements, size: int) -> Standing:
    """What may be said of a size beside the script's own."""
    own, discovery = measurements.own_size, measurements.record.discovery
    if own is None:
        return "own unknown" if discovery is not None and discovery.why_own_unknown else "own"
    if size == own:
        return "too noisy" if _nothing_is_known(measurements, own) else "own"
    if not measurements.usable(own) or _too_large(measurements, own):
        return "own cannot run"
    for_memory = measurements.goal.kind == "memory"
    measured = measurements.sizes_that_ran if for_memory else measurements.best_timed.keys()
    if for_memory and not _is_asked_for(measurements, own):
        return "better"  # of sizes alone, which need no clock to be compared
    if own not in measured:
        return "not compared" if _is_asked_for(measurements, own) else "asked for"
    if for_memory:
        return "better"
    if measurements.goal.kind == "energy":
        return _by_energy(measurements, size, own)
    compared = against_own(measurements, size)
    if compared is None:
        return "not compared"
    floor = _floor(measurements, size, own)
    if compared.contended:
        return "too noisy"
    if compared.ratio.low > floor and compared.ratio.median < _least_share(measurements, size, own):
        return "worse" if compared.ratio.high < 1 else "too noisy"
    if compared.ratio.low > floor:
        if compared.ratio.low > 1:
            return "better"
        return "no gain" if _gains_nothing(measurements, size, own) else "as good"
    return "worse" if compared.ratio.high < floor else "too noisy"


def _nothing_is_known(measurements: Measurements, own: int) -> bool:
    """Whether the own size was timed beside others, and no comparison tells anything of it."""
    timed = measurements.best_timed
    others = [size for size in timed if size != own]
    if measurements.goal.kind not in ("knee", "throughput") or own not in timed or not others:
        return False
    if not says_nothing(timed[own].samples_per_s):
        return False
    comparisons = [against_own(measurements, size) for size in others]
    return not any(
        comparison is not None
        and not comparison.contended
        and (comparison.in_turn or comparison.ratio.high < 1)
        for comparison in comparisons
    )


def _too_large(measurements: Measurements, own: int) -> bool:
    """Whether the script's own size was left out because a smaller one takes too much memory."""
    ran = measurements.sizes_that_ran
    return any(size <= own and measurements.over_target(size) for size in ran)


def _is_asked_for(measurements: Measurements, own: int) -> bool:
    """Whether the user's options let the script's own size run."""
    if measurements.goal.sizes:
        return own in measurements.goal.sizes
    return own <= largest_allowed(measurements) and allowed(measurements, own) == own


def _floor(measurements: Measurements, size: int, own: int) -> float:
    """The share of the own size's throughput that a size must surely reach.

    A smaller size is worth its tolerance for the memory that it leaves, one whose epochs end
    cleanly or that suits BatchNorm for that; a larger one has to be faster.
    """
    sound = smallest_sound(measurements)
    for_another_reason = (
        (measurements.goal.kind == "knee" and size < own)
        or (measurements.harmful(own) and not measurements.harmful(size))
        or own < sound <= size
    )
    if not for_another_reason:
        return 1.0
    tolerance = measurements.goal.tolerance
    return 1 - (tolerance if measurements.goal.kind == "knee" else clean_size.cost_of(measurements))


def _least_share(measurements: Measurements, size: int, own: int) -> float:
    """The share of the own size's throughput that the middle of a comparison must reach.

    Nobody changes a script to make it slower: memory alone is worth what the tolerance grants
    beyond the default, a clean end of the epochs the whole tolerance.
    """
    if not _is_for_memory_alone(measurements, size, own):
        return 0.0  # the interval decides
    return 1 - SLOWER - _granted(measurements)


def _gains_nothing(measurements: Measurements, size: int, own: int) -> bool:
    """Whether a size that is not surely faster leaves about as much memory as the own one."""
    return (
        _is_for_memory_alone(measurements, size, own)
        and size > MUCH_SMALLER * own
        and not _granted(measurements)
    )


def _is_for_memory_alone(measurements: Measurements, size: int, own: int) -> bool:
    """Whether all that speaks for a size is that it is smaller than the own one."""
    clean = measurements.harmful(own) and not measurements.harmful(size)
    return measurements.goal.kind == "knee" and size < own and not clean


def _granted(measurements: Measurements) -> float:
    """The share of throughput that the user gives for memory beyond the default tolerance."""
    return max(0.0, measurements.goal.tolerance - Goal().tolerance)


def _by_energy(measurements: Measurements, size: int, own: int) -> Standing:
    """The same by samples per joule, whose intervals are those of the driver's counters."""
    timed = measurements.best_timed
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
