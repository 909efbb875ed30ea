"""Whether a size may take the place of the script's own: only what was compared with it does."""

from __future__ import annotations

from ...records import Goal, Spread, Standing
from ..measured.energy import joules_spread
from ..measured.measurements import Measurements
from ..measured.sizes import largest_allowed, smallest_sound
from ..measured.speeds import SURE
from ..measured.trials import says_nothing
from . import clean_size

SLOWER = 0.02
"""A smaller size that costs more than this of the own one's throughput is no gain: nobody changes a
script to make it slower."""
A_BOUND = 1.5
"""Gains that are surely smaller are worth a word where the noise does not tell whether there are
any."""
MUCH_SMALLER = 0.5
"""A smaller size that is not surely faster is worth a change up to this share of the own one: going
from 48 to 40 gains nothing."""


def against_own(measurements: Measurements, size: int) -> Spread | None:
    """Throughput of a size over that of the script's own, `None` where both were not timed."""
    own = measurements.own_size
    if own is None or own == size:
        return None
    return measurements.speeds.compare(size, own, SURE)


def surely_faster(measurements: Measurements) -> int | None:
    """The size that is most surely faster than the script's own, where the noise tells it of one.

    Several are asked, so that each has to be so much surer (Bonferroni). It gains more than the
    tolerance: processes of one script differ by that, and turns in one process do not see it.
    """
    own, speeds = measurements.own_size, measurements.speeds
    if own is None or measurements.goal.kind not in ("knee", "throughput"):
        return None
    sizes = [
        size
        for size in measurements.usable_sizes.intersection(measurements.best_timed)
        if size != own and size >= smallest_sound(measurements) and speeds.tells(size, own)
    ]
    lows = {
        size: compared.low
        for size in sizes
        if (compared := speeds.compare(size, own, 1 - (1 - SURE) / len(sizes))) is not None
        and compared.low > 1 + measurements.goal.tolerance
    }
    return max(lows, key=lambda size: lows[size], default=None)


def at_most(measurements: Measurements) -> float | None:
    """How much faster than the script's own size any other one can be that was timed.

    All are asked, so that each has to be so much surer (Bonferroni). `None` without a comparison of
    each, and where that is no bound to speak of.
    """
    own = measurements.own_size
    sizes = measurements.best_timed.keys() - {own}
    if own is None or not sizes or measurements.goal.kind not in ("knee", "throughput"):
        return None
    confidence = 1 - (1 - SURE) / len(sizes)
    ratios = [measurements.speeds.compare(size, own, confidence) for size in sizes]
    most = max(float("inf") if ratio is None else ratio.high for ratio in ratios)
    return most if 1 < most <= A_BOUND else None


def standing(measurements: Measurements, size: int) -> Standing:
    """Compares a size with the script's own, as far as the measurements allow."""
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
    if not measurements.speeds.tells(size, own):
        return "too noisy"
    floor = _floor(measurements, size, own)
    unsure: Standing = "no gain" if is_hardly_faster(measurements, size, compared) else "too noisy"
    if compared.median < _least_share(measurements, size, own):
        return "worse" if compared.high < 1 else unsure
    if compared.low > floor:
        if compared.low > 1:
            return "better"
        return "no gain" if _gains_nothing(measurements, size, own) else "as good"
    return "worse" if compared.high < floor else unsure


def is_hardly_faster(measurements: Measurements, size: int, compared: Spread) -> bool:
    """Whether a size is surely no faster than the script's own by more than the default tolerance,
    and nothing else speaks for it that the user asked for.

    Args:
        compared: its throughput over that of the own size.
    """
    own = measurements.own_size
    if own is None or measurements.goal.kind != "knee" or _granted(measurements):
        return False
    for_another_reason = own < smallest_sound(measurements) or _is_cleaner(measurements, size, own)
    return not for_another_reason and compared.high <= 1 + Goal().tolerance


def _nothing_is_known(measurements: Measurements, own: int) -> bool:
    """Whether the own size was timed beside others, and no comparison tells anything of it."""
    timed, speeds = measurements.best_timed, measurements.speeds
    others = [size for size in timed if size != own]
    if measurements.goal.kind not in ("knee", "throughput") or own not in timed or not others:
        return False
    if not says_nothing(timed[own].samples_per_s):
        return False
    return not any(
        speeds.num_rounds(size, own) or (compared.high < 1 and speeds.tells(size, own))
        for size in others
        if (compared := against_own(measurements, size)) is not None
    )


def _too_large(measurements: Measurements, own: int) -> bool:
    """Whether the script's own size was left out because a smaller one takes too much memory."""
    ran = measurements.sizes_that_ran
    return any(size <= own and measurements.over_target(size) for size in ran)


def _is_asked_for(measurements: Measurements, own: int) -> bool:
    """Whether the user's options let the script's own size run."""
    bounded = measurements.goal.sizes or own <= largest_allowed(measurements)
    return bool(bounded) and measurements.is_asked_for(own)


def _floor(measurements: Measurements, size: int, own: int) -> float:
    """The share of the own size's throughput that a size must surely reach.

    A smaller size is worth its tolerance for the memory that it leaves, one whose epochs end
    cleanly or that suits BatchNorm for that; a larger one has to be faster.
    """
    sound = smallest_sound(measurements)
    for_another_reason = (
        (measurements.goal.kind == "knee" and size < own)
        or _is_cleaner(measurements, size, own)
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
    is_cleaner = _is_cleaner(measurements, size, own)
    return measurements.goal.kind == "knee" and size < own and not is_cleaner


def _is_cleaner(measurements: Measurements, size: int, own: int) -> bool:
    """Whether a size does no harm at the end of its epochs, where the own one does."""
    return measurements.harmful(own) and not measurements.harmful(size)


def _granted(measurements: Measurements) -> float:
    """The share of throughput that the user gives for memory beyond the default tolerance."""
    return max(0.0, measurements.goal.tolerance - Goal().tolerance)


def _by_energy(measurements: Measurements, size: int, own: int) -> Standing:
    """Compares two sizes by samples per joule, within the intervals of the driver's counters."""
    timed = measurements.best_timed
    mine, theirs = joules_spread(timed[size]), joules_spread(timed[own])
    if mine is None or theirs is None:
        return "not compared"
    if mine.low > theirs.high:
        return "better"
    return "worse" if mine.high < theirs.low else "too noisy"
