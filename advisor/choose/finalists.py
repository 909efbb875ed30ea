"""The sizes that a fresh process compares: the one to recommend first, then its rival."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from ...records import Trial
from ..measured.energy import samples_per_joule, thriftiest
from ..measured.measurements import Measurements
from ..measured.once import once
from ..measured.sizes import allowed
from ..measured.speeds import FEW
from ..measured.trials import pooled, throughput, undisturbed
from ..measured.turn_sizes import only_beside_others
from . import clean_size
from .knee import fastest, knee

FINALIST_ROUNDS = 2
"""Each finalist is measured this often, in turn."""
MAX_DISTURBED = 2
"""Disturbed trials of one size that are measured again; further ones count."""
DISAGREEMENT = 0.15
"""Search and confirmation that differ by more, beyond their intervals, are a finding."""
STEP_UP = 1.3
"""How much larger the next candidate is when a size is turned down."""


@once
def finalists(measurements: Measurements) -> tuple[int, ...]:
    """The recommended size first, then what it is compared with. Empty when nothing ran.

    A size that turned out too slow in the confirmation makes way for the next larger one, and one
    that was taken for the clean end of its epochs for the best.
    """
    kind = measurements.goal.kind
    if kind == "knee":
        return _knee_finalists(measurements)
    best = best_of(measurements)
    if best is None:
        return ()
    size = _clean_instead(measurements, best)
    if kind == "memory":
        return (size,)
    if size != best:
        return (size, best)
    other = fastest(measurements) if kind == "energy" else _runner_up(measurements, best)
    if other is None or other == best:
        return (best,)
    return (other, best) if _was_slower(measurements, best, other) else (best, other)


def _was_slower(measurements: Measurements, best: int, other: int) -> bool:
    """Whether the runner-up turned out clearly faster than the best of the search."""
    # Less is not worth a change of mind.
    floor = 1 - clean_size.SPEED_COST
    return measurements.goal.kind == "throughput" and is_below(measurements, best, other, floor)


@once
def best_of(measurements: Measurements) -> int | None:
    """The best size of a goal other than `knee`, however its epochs end."""
    if measurements.goal.kind == "memory":
        return max(measurements.usable_sizes, default=None)
    return thriftiest(measurements) if measurements.goal.kind == "energy" else fastest(measurements)


def passed_over(measurements: Measurements) -> int | None:
    """The best size where a clean one near it was taken instead; see clean_size.py."""
    if measurements.goal.kind == "knee":
        return None
    best = best_of(measurements)
    return best if best is not None and _clean_instead(measurements, best) != best else None


def _clean_instead(measurements: Measurements, best: int) -> int:
    if measurements.goal.kind == "memory":
        worth = {size: float(size) for size in measurements.usable_sizes}
    else:
        worth = clean_size.worth_of(measurements)
    size = clean_size.preferred(measurements, best, worth)
    return best if size != best and _costs_too_much(measurements, size, best) else size


def _costs_too_much(measurements: Measurements, size: int, best: int) -> bool:
    """Whether the confirmation says that a size costs more than the tolerance."""
    floor, kind = 1 - clean_size.cost_of(measurements), measurements.goal.kind
    if kind == "energy":
        mine, theirs = (
            [
                value
                for trial in readings_of(measurements.confirmations, which)
                if (value := samples_per_joule(trial)) is not None
            ]
            for which in (size, best)
        )
        if min(len(mine), len(theirs)) < FINALIST_ROUNDS:
            return False
        return median(mine) < floor * median(theirs)
    return kind != "memory" and is_below(measurements, size, best, floor)


def _knee_finalists(measurements: Measurements) -> tuple[int, ...]:
    best = fastest(measurements)
    if best is None:
        return ()
    size = knee(measurements)
    assert size is not None
    rival = best if size < best else _fastest_above(measurements, size)
    if rival is None:
        return (size,)
    size = _after_rejections(measurements, size, rival)
    return (size,) if size >= rival else (size, rival)


def readings_of(series: Sequence[Trial], size: int) -> list[Trial]:
    return [trial for trial in series if trial.batch_size == size]


def rounds_of(series: Sequence[Trial], size: int) -> int:
    """Rounds that a size has behind it; a disturbed trial does not count, within limits."""
    trials = readings_of(series, size)
    disturbed = sum(1 for trial in trials if trial.doubtful)
    return len(trials) - min(disturbed, MAX_DISTURBED)


def _after_rejections(measurements: Measurements, size: int, best: int) -> int:
    """Moves from the knee towards the fastest size while the confirmation rejects it."""
    known = sorted({best, *filter(measurements.eligible, measurements.best_timed)})
    while size < best:
        if not _misses_tolerance(measurements, size, best):
            return size
        larger = [candidate for candidate in known if size < candidate <= best]
        step = allowed(measurements, size * STEP_UP, up=True)
        # A near neighbour that ran, else one between that will now be run: alone, which tells
        # nothing where sizes only ever run beside others.
        between = size < step < best and not measurements.ruled_out(step)
        between = between and not only_beside_others(measurements)
        size = step if between and larger[0] > size * 1.5 else larger[0]
    return size


def _misses_tolerance(measurements: Measurements, size: int, best: int) -> bool:
    """Whether a size is beyond the tolerance of the fastest one.

    Where they took turns the middle of their ratio decides: to turn down only what is surely
    beyond would keep each size that is a little beyond. Elsewhere it has to be sure.
    """
    floor, speeds = 1 - measurements.goal.tolerance, measurements.speeds
    if is_below(measurements, size, best, floor):
        return True
    compared = speeds.compare(size, best)
    if compared is None or speeds.num_rounds(size, best) < FEW or not speeds.tells(size, best):
        return False
    return compared.median < floor


def agrees(measurements: Measurements, size: int) -> bool:
    """Whether the fresh process bears out what the search found of a size.

    It does not where it read another throughput, nor where its steps were disturbed so often that
    its own reading says little.
    """
    if measurements.goal.kind == "memory":
        return True  # that it fitted again is all that is asked
    series = readings_of(measurements.confirmations, size)
    if series and all(trial.contended for trial in series):
        return False
    return disagreement(measurements, size) is None


def disagreement(measurements: Measurements, size: int) -> float | None:
    """Throughput in the fresh process over that of the search, where both intervals exclude 1.

    Where the script's own size was measured in both, what it gained or lost between them was the
    machine's doing, and is taken out.
    """
    again, own = fresh_over_search(measurements, size), measurements.own_size
    if again is None:
        return None
    ratio, apart = again
    machine = None if own is None or own == size else fresh_over_search(measurements, own)
    if machine is not None:
        ratio /= machine[0]
    return ratio if apart and abs(ratio - 1) >= DISAGREEMENT else None


def fresh_over_search(measurements: Measurements, size: int) -> tuple[float, bool] | None:
    """Throughput in the fresh process over that of the search; whether the intervals are apart.

    Beside others both reach up to what the size would have done alone: the load may have changed.
    """
    before = measurements.searched_alone.get(size)
    again = pooled(undisturbed(readings_of(measurements.confirmations, size)), "samples_per_s")
    if before is None or before.samples_per_s is None or again is None:
        return None
    apart = again.low > before.samples_per_s.high or again.high < before.samples_per_s.low
    return again.median / before.samples_per_s.median, apart


def is_below(measurements: Measurements, size: int, other: int, floor: float) -> bool:
    """Whether a size surely has less than this share of another one's throughput."""
    compared = measurements.speeds.compare(size, other)
    if compared is None or not measurements.speeds.tells(size, other):
        return False
    return compared.high < floor


def _fastest_above(measurements: Measurements, size: int) -> int | None:
    """The larger size with the highest throughput, which a knee has to be compared with."""
    return _fastest_of(measurements, (other for other in measurements.searched if other > size))


def _runner_up(measurements: Measurements, best: int) -> int | None:
    return _fastest_of(measurements, (size for size in measurements.searched if size != best))


def _fastest_of(measurements: Measurements, sizes: Iterable[int]) -> int | None:
    return max(sizes, key=lambda size: throughput(measurements.searched[size]), default=None)
