"""By which rule of the goal a size was chosen, for the sizes that ran."""

from __future__ import annotations

from ..measured.energy import samples_per_joule
from ..measured.measurements import Measurements
from ..measured.scaling import input_share
from ..measured.sizes import smallest_sound
from ..measured.thresholds import INPUT_SHARE
from ..measured.trials import throughput, undisturbed
from . import clean_size
from .because import (
    Again,
    Doubt,
    FasterAgain,
    Fastest,
    FastestConfirmed,
    FastestUsable,
    Knee,
    KneeRule,
    Largest,
    LoaderSetsThePace,
    NextToFastest,
    NextToLargest,
    NextToThriftiest,
    OfTheGoal,
    OnlyTimed,
    Thriftiest,
)
from .finalists import ROUNDS, finalists, num_comparisons, passed_over, ratio_to
from .knee import fastest, knee, tail_avoided
from .rivals import open_rival


def rule_of(measurements: Measurements, size: int) -> OfTheGoal:
    """The rule by which the goal chose a size."""
    kind = measurements.goal.kind
    avoided = passed_over(measurements)
    if avoided is not None and avoided != size:
        return _instead_of(measurements, size, avoided)
    if kind == "memory":
        return Largest()
    if len(measurements.best_timed) == 1:
        return OnlyTimed()
    if kind == "energy":
        return _thriftiest(measurements, size)
    if kind == "throughput":
        return _fastest(measurements, size)
    share = _waiting(measurements, size)
    return _knee(measurements, size) if share is None else LoaderSetsThePace(share)


def _instead_of(
    measurements: Measurements, size: int, avoided: int
) -> NextToLargest | NextToThriftiest | NextToFastest:
    """A clean size came before the best one of its goal."""
    kind, cost = measurements.goal.kind, clean_size.cost_of(measurements)
    if kind == "memory":
        return NextToLargest(avoided, cost)
    if kind == "energy":
        timed = measurements.best_timed
        mine, theirs = (samples_per_joule(timed[batch_size]) or 0 for batch_size in (size, avoided))
        return NextToThriftiest(avoided, cost, mine, theirs)
    return NextToFastest(avoided, cost, _again(measurements, size, avoided))


def _thriftiest(measurements: Measurements, size: int) -> Thriftiest:
    best = fastest(measurements)
    if best is None or best == size:
        return Thriftiest()
    return Thriftiest(best, samples_per_joule(measurements.best_timed[best]))


def _fastest(
    measurements: Measurements, size: int
) -> Fastest | FasterAgain | FastestConfirmed | FastestUsable:
    """The fastest, or what came before the fastest of the search."""
    best = fastest(measurements)
    if best is None or best == size:
        return Fastest()
    again = _again(measurements, size, best)
    if again is not None:
        return FasterAgain(again)
    confirmed = {trial.batch_size for trial in measurements.confirmations}
    if size in confirmed and best not in confirmed:
        return FastestConfirmed(best)
    return FastestUsable(best)


def _waiting(measurements: Measurements, size: int) -> float | None:
    """The share of a step that waits for the loader, where that keeps the script's own size."""
    sizes = measurements.searched
    if size != measurements.own_size or size not in sizes:
        return None
    again = undisturbed([trial for trial in measurements.confirmations if trial.batch_size == size])
    # The trial that speaks for a size in the table too: the fresh process, where it ran there.
    share = input_share(max(again, key=throughput, default=sizes[size]))
    return None if share < INPUT_SHARE or _surely_slower(measurements, size) else share


def _surely_slower(measurements: Measurements, size: int) -> bool:
    """Whether another size that ran is faster by more than the tolerance, fit to use or not."""
    rates = {other: trial.samples_per_s for other, trial in measurements.best_timed.items()}
    mine, floor = rates.get(size), 1 - measurements.goal.tolerance
    return mine is not None and any(
        rate is not None and mine.high < floor * rate.low for rate in rates.values()
    )


def _knee(measurements: Measurements, size: int) -> Knee:
    """Which size of the knee it is, and how it fared beside its rival in the fresh process."""
    best = fastest(measurements)
    rule, beside = _knee_rule(measurements, size, best)
    rivals = [
        rival for rival in (*finalists(measurements), best) if rival is not None and rival != size
    ]
    known = (_again(measurements, size, rival) for rival in rivals)
    again = next((comparison for comparison in known if comparison is not None), None)
    if again is None:
        return Knee(rule, beside)
    return Knee(rule, beside, again, _doubt(again, 1 - measurements.goal.tolerance))


def _knee_rule(
    measurements: Measurements, size: int, best: int | None
) -> tuple[KneeRule, int | None]:
    """The rule, and the size that the chosen one stands next to, or was taken for."""
    if best is None:
        return _inside(measurements, size)
    if size > best and size != knee(measurements):
        again = ratio_to(measurements, size, best)
        if again is not None and again[1] > 1:
            return "faster in the fresh process", best
        return "the fresh process turned the fastest down", best
    if best < smallest_sound(measurements) <= size:
        return "large enough for BatchNorm", best
    if size > best and measurements.harmful(best):
        return "clean beside the fastest", best
    if best == size and open_rival(measurements, size) is None:
        return "smallest within the tolerance and fastest", None
    if best == size:
        return "fastest", None
    return _inside(measurements, size)


def _inside(measurements: Measurements, size: int) -> tuple[KneeRule, int | None]:
    """The smallest size within the tolerance, or a clean one above it."""
    avoided = tail_avoided(measurements)
    if avoided is not None and avoided < size:
        return "clean beside the smallest", avoided
    return "smallest within the tolerance", None


def _doubt(again: Again, floor: float) -> Doubt:
    """What keeps the fresh process from bearing out that a size reaches the floor."""
    if again.middle >= floor:
        return "none"
    if again.high >= floor:
        return "noise"
    return "few readings" if again.num_readings < ROUNDS else "drift"


def _again(measurements: Measurements, size: int, other: int) -> Again | None:
    """How two sizes compare in the fresh process; `None` where they do not."""
    compared = ratio_to(measurements, size, other)
    if compared is None:
        return None
    return Again(other, *compared, num_comparisons(measurements, size, other))
